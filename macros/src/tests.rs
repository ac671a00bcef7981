//! Tests on tokens.
