//! Who calls over HTTP: bearer tokens in a file, each with an identity and permissions.

use std::{
    collections::BTreeSet,
    error::Error,
    fmt, fs, io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use axum::http::{HeaderMap, header::AUTHORIZATION};
use idempotent_tool::{Access, Asked, Caller, EmptyScope, Scope};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The tools that a token may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions(BTreeSet<String>);

impl Permissions {
    /// Whether `tool` is among them.
    #[must_use]
    pub fn allow(&self, tool: &str) -> bool {
        self.0.contains(tool)
    }
}

/// The toolbox's authorizer: whoever may call a tool may read and cancel its operations.
pub fn authorize(caller: &Caller, asked: &Asked<'_>) -> Access {
    let permissions = caller.get::<Permissions>();
    Access::from(permissions.is_some_and(|permissions| permissions.allow(asked.tool())))
}

/// The tokens in a file, as the file is now. Clones share what was read.
#[derive(Clone)]
pub struct Tokens {
    path: Arc<PathBuf>,
    read: Arc<Mutex<Read>>,
}

/// The file as it was last read, and what it said.
#[derive(Default)]
struct Read {
    bytes: Vec<u8>,
    callers: Arc<[(TokenDigest, Caller)]>,
}

type TokenDigest = [u8; 32];

/// The file: `[[token]]` tables.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default, rename = "token")]
    tokens: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    token: String,
    account: Option<String>,
    principal: Option<String>,
    workspace: Option<String>,
    #[serde(default)]
    permissions: BTreeSet<String>,
}

/// Why nobody can be identified. No text of the file is in it.
#[derive(Debug)]
#[non_exhaustive]
pub enum TokensError {
    /// The file can't be read.
    #[non_exhaustive]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        error: io::Error,
    },
    /// The file is not UTF-8 text.
    Encoding,
    /// The file is not what it should be.
    Format {
        /// The line of the mistake, from 1.
        line: usize,
    },
    /// A token names no account, principal or workspace.
    Scope(EmptyScope),
    /// A token is no bearer token, or is in the file twice.
    Token {
        /// Which table, from 1.
        number: usize,
    },
}

impl fmt::Display for TokensError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, error } => {
                write!(
                    f,
                    "the token file `{}` can't be read: {error}",
                    path.display()
                )
            }
            Self::Encoding => f.write_str("the token file is not UTF-8 text"),
            Self::Format { line } => write!(
                f,
                "the token file has a mistake in line {line}; it must have `[[token]]` tables of `token`, `account`, `principal`, `workspace` and `permissions`"
            ),
            Self::Scope(_) => f.write_str(
                "a token names nobody; give it an `account`, a `principal` or a `workspace`",
            ),
            Self::Token { number } => write!(
                f,
                "the token of table {number} is empty, has a character that can't be sent, or occurs twice"
            ),
        }
    }
}

impl Error for TokensError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Scope(error) => Some(error),
            // The message says the cause of `Io` already.
            Self::Io { .. } | Self::Encoding | Self::Format { .. } | Self::Token { .. } => None,
        }
    }
}

impl Tokens {
    /// The tokens in the file at `path`, which is read again for every request: a token or
    /// a permission that is removed from it is gone at once.
    ///
    /// # Errors
    ///
    /// When the file can't be read, or is not what it should be.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, TokensError> {
        let tokens = Self {
            path: Arc::new(path.into()),
            read: Arc::default(),
        };
        tokens.callers()?;
        Ok(tokens)
    }

    /// The caller that the request's bearer token belongs to, if it belongs to one.
    ///
    /// # Errors
    ///
    /// When the file can't be read now: then nobody is identified, since a token may just
    /// have been removed.
    pub fn caller(&self, headers: &HeaderMap) -> Result<Option<Caller>, TokensError> {
        let callers = self.callers()?;
        let Some(token) = bearer_token(headers) else {
            return Ok(None);
        };
        let digest = digest(token);
        // Every token is compared, and each in constant time.
        let mut found = None;
        for (known, caller) in callers.iter() {
            if bool::from(known.ct_eq(&digest)) {
                found = Some(caller);
            }
        }
        Ok(found.cloned())
    }

    fn callers(&self) -> Result<Arc<[(TokenDigest, Caller)]>, TokensError> {
        // A time of modification is too coarse to tell two changes apart; the bytes are not.
        let bytes = fs::read(&*self.path).map_err(|error| TokensError::Io {
            path: self.path.to_path_buf(),
            error,
        })?;
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.bytes != bytes {
            let callers = parse(&bytes)?;
            *read = Read { bytes, callers };
        }
        Ok(Arc::clone(&read.callers))
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

fn parse(bytes: &[u8]) -> Result<Arc<[(TokenDigest, Caller)]>, TokensError> {
    let text = str::from_utf8(bytes).map_err(|_| TokensError::Encoding)?;
    let file: File = toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        TokensError::Format {
            line: before.unwrap_or(text).matches('\n').count() + 1,
        }
    })?;
    let mut callers: Vec<(TokenDigest, Caller)> = Vec::new();
    for (index, entry) in file.tokens.into_iter().enumerate() {
        let token = digest(&entry.token);
        if !is_token(&entry.token) || callers.iter().any(|(known, _)| *known == token) {
            return Err(TokensError::Token { number: index + 1 });
        }
        let mut scope = Scope::builder();
        if let Some(account) = entry.account {
            scope = scope.account(account);
        }
        if let Some(principal) = entry.principal {
            scope = scope.principal(principal);
        }
        if let Some(workspace) = entry.workspace {
            scope = scope.workspace(workspace);
        }
        let scope = scope.build().map_err(TokensError::Scope)?;
        let caller = Caller::new(scope).with(Permissions(entry.permissions));
        callers.push((token, caller));
    }
    Ok(callers.into())
}

fn digest(token: &str) -> TokenDigest {
    Sha256::digest(token.as_bytes()).into()
}

/// What `Authorization: Bearer` carries; nothing if the header is missing or doubled.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let token = token.trim_start_matches(' ');
    (scheme.eq_ignore_ascii_case("bearer") && is_token(token)).then_some(token)
}

/// Whether a header can carry `token` as RFC 6750 writes it.
fn is_token(token: &str) -> bool {
    let body = token.trim_end_matches('=');
    !body.is_empty()
        && body
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const TWO: &str = r#"
        [[token]]
        token = "ada-token"
        account = "acme"
        principal = "ada"
        permissions = ["create_note"]

        [[token]]
        token = "bob-token"
        principal = "bob"
    "#;

    fn bearer(token: &str) -> HeaderMap {
        let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
        HeaderMap::from_iter([(AUTHORIZATION, value)])
    }

    #[test]
    fn a_token_is_a_caller_with_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        fs::write(&path, TWO).unwrap();
        let tokens = Tokens::open(&path).unwrap();
        let ada = tokens.caller(&bearer("ada-token")).unwrap().unwrap();
        assert_eq!(ada.scope().to_string(), r#"["acme","ada",null]"#);
        assert!(ada.get::<Permissions>().unwrap().allow("create_note"));
        let bob = tokens.caller(&bearer("bob-token")).unwrap().unwrap();
        assert!(!bob.get::<Permissions>().unwrap().allow("create_note"));
        for unknown in ["ada", "ada-token2", "ada-toke"] {
            assert!(tokens.caller(&bearer(unknown)).unwrap().is_none());
        }
        assert!(tokens.caller(&HeaderMap::new()).unwrap().is_none());

        // Another file of the same length at once: it is the bytes that count.
        fs::write(&path, TWO.replace("bob-token", "bob-t0ken")).unwrap();
        assert!(tokens.caller(&bearer("bob-token")).unwrap().is_none());
        assert!(tokens.caller(&bearer("bob-t0ken")).unwrap().is_some());
        fs::remove_file(&path).unwrap();
        let error = tokens.caller(&bearer("bob-t0ken")).unwrap_err();
        assert!(matches!(error, TokensError::Io { .. }), "{error}");
        let cause = fs::read(&path).unwrap_err().to_string();
        for part in [path.to_str().unwrap(), &cause] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn only_one_bearer_header_identifies() {
        let token = |value: &'static str| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(value))]);
            bearer_token(&headers).map(ToOwned::to_owned)
        };
        assert_eq!(token("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(token("bearer  abc==").as_deref(), Some("abc=="));
        for refused in [
            "Bearer",
            "Bearer ",
            "Basic abc",
            "abc",
            "Bearer a b",
            "Bearer =",
        ] {
            assert_eq!(token(refused), None, "{refused}");
        }
        let mut twice = bearer("abc");
        twice.append(AUTHORIZATION, HeaderValue::from_static("Bearer abc"));
        assert_eq!(bearer_token(&twice), None);
    }

    #[test]
    fn a_mistake_in_the_file_is_located_and_not_quoted() {
        let mistakes = [
            ("token = 7", "line 1"),
            ("\n[[token]]\ntoken = \"secret\"\nroles = []", "line"),
            ("[[token]]\ntoken = \"secret\"", "names nobody"),
            (
                "[[token]]\ntoken = \"se cret\"\nprincipal = \"a\"",
                "table 1",
            ),
            (
                "[[token]]\ntoken = \"secret\"\nprincipal = \"a\"\n[[token]]\ntoken = \"secret\"\nprincipal = \"b\"",
                "table 2",
            ),
        ];
        for (file, part) in mistakes {
            let error = parse(file.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(part), "{file}: {error}");
            assert!(!error.contains("cret"), "{error}");
        }
    }
}
