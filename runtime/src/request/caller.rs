//! Who calls, as the application has authenticated them.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt,
    sync::Arc,
};

use crate::request::scope::Scope;

/// An authenticated caller: its scope, and what else the authorizer needs to know of it.
///
/// Made by the application from the authenticated connection or request, never from
/// arguments: like [`Scope`] it can't be deserialized. Clones are cheap.
///
/// ```
/// use idempotent_tool::{Caller, Scope};
///
/// struct MayWrite(bool);
///
/// let scope = Scope::builder().account("acme").principal("ada").build()?;
/// let caller = Caller::new(scope).with(MayWrite(true));
/// assert!(caller.get::<MayWrite>().is_some_and(|may| may.0));
/// # Ok::<(), idempotent_tool::EmptyScope>(())
/// ```
#[derive(Clone)]
pub struct Caller {
    scope: Scope,
    extensions: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
}

impl Caller {
    /// The caller whose operations live in `scope`.
    #[must_use]
    pub fn new(scope: Scope) -> Self {
        Self {
            scope,
            extensions: HashMap::new(),
        }
    }

    /// Adds a value that the authorizer can read, such as permissions; replaces one of the same type.
    #[must_use]
    pub fn with<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.extensions.insert(TypeId::of::<T>(), Arc::new(value));
        self
    }

    /// The value of type `T` that [`with`](Self::with) added.
    #[must_use]
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.extensions
            .get(&TypeId::of::<T>())
            .and_then(|value| value.downcast_ref())
    }

    /// Where the caller's operations live.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller")
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}
