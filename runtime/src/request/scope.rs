//! Who and where: what keeps one caller's keys apart from another's.

use std::{fmt, sync::Arc};

/// Who and where an operation belongs to.
///
/// The application chooses the components; agents that hand work over to each other
/// share a scope. An absent component differs from an empty one, and no component can
/// be mistaken for part of another.
///
/// A scope is made by server code from an authenticated caller. It implements no
/// `Deserialize`, so that it can't come out of a request:
///
/// ```compile_fail
/// let scope: idempotent_tool::Scope = serde_json::from_str(r#"["a","p","w"]"#).unwrap();
/// ```
///
/// ```
/// use idempotent_tool::Scope;
///
/// let scope = Scope::builder().account("acme").principal("ada").build()?;
/// assert_eq!(scope.as_str(), r#"["acme","ada",null]"#);
/// assert_eq!(scope.workspace(), None);
/// # Ok::<(), idempotent_tool::EmptyScope>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    account: Option<Box<str>>,
    principal: Option<Box<str>>,
    workspace: Option<Box<str>>,
    text: Arc<str>,
}

/// Builds a [`Scope`].
#[derive(Debug, Clone, Default)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct ScopeBuilder {
    account: Option<Box<str>>,
    principal: Option<Box<str>>,
    workspace: Option<Box<str>>,
}

/// A scope without any component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a scope needs at least one of account, principal and workspace; set the one that owns the operations"
)]
#[non_exhaustive]
pub struct EmptyScope;

impl Scope {
    /// Starts a scope without components.
    pub fn builder() -> ScopeBuilder {
        ScopeBuilder::default()
    }

    /// The account, such as a customer.
    #[must_use]
    pub fn account(&self) -> Option<&str> {
        self.account.as_deref()
    }

    /// The principal, such as a user or a service account.
    #[must_use]
    pub fn principal(&self) -> Option<&str> {
        self.principal.as_deref()
    }

    /// The workspace, such as a project.
    #[must_use]
    pub fn workspace(&self) -> Option<&str> {
        self.workspace.as_deref()
    }

    /// The JSON array `[account, principal, workspace]`, null for absent: the form for
    /// the application's own tables.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The scope that the ledger holds as `text`.
    pub(crate) fn from_text(text: &Arc<str>) -> Option<Self> {
        let [account, principal, workspace]: [Option<Box<str>>; 3] =
            serde_json::from_str(text).ok()?;
        Some(Self {
            account,
            principal,
            workspace,
            text: Arc::clone(text),
        })
    }

    pub(crate) fn text(&self) -> &Arc<str> {
        &self.text
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({})", self.text)
    }
}

impl ScopeBuilder {
    /// Sets the account.
    pub fn account(mut self, account: impl Into<String>) -> Self {
        self.account = Some(account.into().into());
        self
    }

    /// Sets the principal.
    pub fn principal(mut self, principal: impl Into<String>) -> Self {
        self.principal = Some(principal.into().into());
        self
    }

    /// Sets the workspace.
    pub fn workspace(mut self, workspace: impl Into<String>) -> Self {
        self.workspace = Some(workspace.into().into());
        self
    }

    /// The scope.
    ///
    /// # Errors
    ///
    /// When no component was set: there is no implicit fallback scope.
    pub fn build(self) -> Result<Scope, EmptyScope> {
        let components = [&self.account, &self.principal, &self.workspace];
        if components.iter().all(|component| component.is_none()) {
            return Err(EmptyScope);
        }
        let text = serde_json::Value::from_iter(components.map(Option::as_deref)).to_string();
        Ok(Scope {
            account: self.account,
            principal: self.principal,
            workspace: self.workspace,
            text: text.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_cannot_bleed_into_each_other() {
        let left = Scope::builder()
            .account("a:b")
            .principal("c")
            .build()
            .unwrap();
        let right = Scope::builder()
            .account("a")
            .principal("b:c")
            .build()
            .unwrap();
        let quoted = Scope::builder().account("a\",\"b").build().unwrap();
        let plain = Scope::builder()
            .account("a")
            .principal("b")
            .build()
            .unwrap();
        assert_ne!(left.as_str(), right.as_str());
        assert_ne!(quoted.as_str(), plain.as_str());
    }

    #[test]
    fn absent_differs_from_empty() {
        let absent = Scope::builder().account("a").build().unwrap();
        let empty = Scope::builder().account("a").principal("").build().unwrap();
        assert_eq!(absent.as_str(), r#"["a",null,null]"#);
        assert_eq!(empty.as_str(), r#"["a","",null]"#);
    }

    #[test]
    fn an_empty_scope_is_refused() {
        assert_eq!(Scope::builder().build(), Err(EmptyScope));
    }
}
