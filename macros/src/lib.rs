//! stub
use proc_macro::TokenStream;
/// stub
#[proc_macro_attribute]
pub fn idempotent_tool(_args: TokenStream, item: TokenStream) -> TokenStream { item }
