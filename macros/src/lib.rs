//! The attribute of `idempotent-tool`.
//!
//! Use the `idempotent-tool` crate, which re-exports it: what the attribute expands to
//! names that crate.

mod args;
mod describe;
mod diagnostics;
mod expand;
mod external;
mod item;
mod literal;
mod model;
mod parameter;
mod types;
mod value;

#[cfg(test)]
mod tests;

/// Turns a function into a tool that can be called again after a lost answer.
///
/// The function stays as it is, callable in unit tests by whoever holds its context. A
/// type of the same name appears beside it; it names the tool where the toolbox is built.
///
/// ```ignore
/// /// Create a note in the caller's project.
/// #[idempotent_tool(operation = "create_note:v1", retention = "30d")]
/// fn create_note(
///     tx: &Tx,
///     /// The text of the note.
///     #[schemars(length(min = 1, max = 10_000))]
///     body: String,
/// ) -> Result<Note, Failure> {
///     let id = Uuid::now_v7();
///     tx.execute("INSERT INTO notes (id, scope, body) VALUES (?1, ?2, ?3)", (id, tx.scope(), &body))?;
///     Ok(Note { note_id: id })
/// }
///
/// let tools = Toolbox::builder(store).authorize(may_use_tools).tool::<create_note>().build()?;
/// ```
///
/// # Arguments of the attribute
///
/// | argument | meaning | default |
/// |---|---|---|
/// | `operation = "create_note:v1"` | the contract: the tool's name, `[a-z][a-z0-9_]{0,63}`, and a version from 1 to 999999999 | required |
/// | `retention = "30d"` | how long a result is kept for replay | 30 days |
/// | `tombstone = "365d"` | how long after that the key is still refused | 365 days |
/// | `deadline = "30s"` | the budget of one call, waiting included | 30 seconds |
/// | `max_result = "1MiB"` | the largest result as JSON; also an integer of bytes | 1 MiB |
/// | `title = "Create note"` | a title for people | none |
/// | `destructive = false` | whether the effect may destroy something, a hint to clients | `true` |
/// | `open_world = true` | whether the effect reaches beyond the server, a hint to clients | `true` for external tools |
/// | `effects_outside = true` | whether the handler tells something outside its transaction, see `Tx`: a call that fails beside it doesn't make it run again | `false` |
/// | `authorize = path` | the tool's own authorizer, a `fn(&Caller, &Asked<'_>) -> Access` | the toolbox's |
/// | `crate = ::path` | where `idempotent-tool` is found, if renamed or re-exported | `::idempotent_tool` |
///
/// An external tool, an `async fn` whose first parameter is `attempt: &Attempt`, names one
/// recovery: how an attempt in doubt, whose answer was lost, is settled.
///
/// | argument | meaning | default |
/// |---|---|---|
/// | `provider_key(window = "24h")` | the provider answers one key once for so long: send again | |
/// | `reconcile(path, settle = "30s")` | ask: an `async fn(&Inquiry) -> Result<Reconciled<Output>, AttemptError>`; its "not applied" counts once no send is younger than `settle` | |
/// | `inspect = "what to check"` | neither is possible: a person looks | |
/// | `inspect = "…"` as the last in the parentheses of the other two | what to check when they can't establish the outcome | a general text |
/// | `attempt_timeout = "8s"` | the longest that one attempt takes | 8 seconds |
/// | `max_attempts = 3` | how many attempts one call makes | 3 |
/// | `wait = "5s"` | how long a caller waits before it gets a handle | 5 seconds |
/// | `backoff = "200ms"` | the delay before the second attempt; it doubles, with jitter | 200 ms |
/// | `keep_request = true` | whether the arguments are kept after the end | `false` |
///
/// In the text of `inspect`, `{operation_id}` and the name of a required argument in braces
/// stand for their values, so that it can name the exact call that shows what happened.
///
/// Durations are a whole number and one of `ms`, `s`, `m`, `h`, `d`, above zero and at
/// most `36500d`; sizes are a whole number and one of `B`, `KiB`, `MiB`, `GiB`, above
/// zero and at most `512MiB`.
///
/// # Parameters of the function
///
/// The context comes first: `tx: &Tx` or `attempt: &Attempt`. Each parameter after it is an
/// argument of the tool; its doc comment becomes the argument's description, and `#[schemars(…)]` on it
/// means what it means on a field, as do `default`, `rename`, `with` and `deserialize_with`
/// in `#[serde(…)]`. Its type is owned and implements `serde::Deserialize` and
/// `schemars::JsonSchema`. None is named `idempotency_key`, which every tool has already.
/// An `Option` may be absent. With `#[serde(default)]` or `#[serde(default = "path")]` the
/// default is part of the contract, so the type implements `serde::Serialize` too.
///
/// - `#[arguments] note: NewNote` takes all arguments as one struct.
/// - `#[state] http: &Client` is injected from the toolbox and is no argument.
///
/// The function returns `Result<Output, Error>` where the output implements
/// `serde::Serialize` and `schemars::JsonSchema` and the error converts into `Failure`.
/// `?` converts `rusqlite::Error`.
///
/// The error of an external tool converts into `AttemptError`, which says what is known of
/// the attempt.
///
/// It is a free function, not generic: an operation's name means one contract. Methods can't be tools; neither can functions inside an `impl` block.
///
/// An attribute switched off, as by `#[cfg_attr(feature = "x", idempotent_tool(…))]`, strips
/// nothing from the parameters, so rustc then refuses their `#[schemars(…)]` and the like.
#[proc_macro_attribute]
pub fn idempotent_tool(
    args: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    expand::idempotent_tool(args.into(), item.into()).into()
}
