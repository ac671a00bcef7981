//! What a caller asks: who, with which key, for what; checked before anything runs.

pub(crate) mod arguments;
pub(crate) mod authorize;
pub(crate) mod caller;
pub(crate) mod carrier;
pub(crate) mod contract;
pub(crate) mod json_schema;
pub(crate) mod key;
pub(crate) mod registered;
pub(crate) mod scope;
pub(crate) mod tags;
