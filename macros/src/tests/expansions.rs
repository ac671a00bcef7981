//! Three expansions as a reader sees them.

#![allow(
    clippy::too_many_lines,
    clippy::needless_raw_string_hashes,
    reason = "an expansion is as long as it is, and `expect-test` writes it"
)]

use expect_test::{Expect, expect};
use proc_macro2::TokenStream;
use quote::quote;
use syn::{Block, Expr, Item, Stmt};

use crate::expand::idempotent_tool;

fn check(args: TokenStream, item: TokenStream, expansion: &Expect) {
    expansion.assert_eq(&expand(args, item));
}

/// The expansion as formatted code, without the macro around what names our crate.
fn expand(args: TokenStream, item: TokenStream) -> String {
    let mut file: syn::File = syn::parse2(idempotent_tool(args, item)).unwrap();
    for item in &mut file.items {
        if let Item::Const(constant) = item
            && let Expr::Block(block) = constant.expr.as_mut()
            && let [Stmt::Macro(call)] = block.block.stmts.as_slice()
        {
            block.block.stmts = call.mac.parse_body_with(Block::parse_within).unwrap();
        }
    }
    prettyplease::unparse(&file)
}

#[test]
fn arguments_as_parameters() {
    check(
        quote!(
            operation = "create_note:v2",
            retention = "90d",
            destructive = false
        ),
        quote! {
            /// Create a note.
            ///
            /// It belongs to the caller.
            pub(crate) fn create_note(
                tx: &Tx,
                /// The text of the note.
                #[schemars(length(min = 1, max = 10_000))]
                body: String,
                #[serde(default, rename = "pin")] pinned: bool,
                #[serde(default = "normal")] r#type: Kind,
                #[state] http: &Client,
            ) -> Result<Note, Failure> {
                Ok(Note { body })
            }
        },
        &expect![[r##"
            #[allow(
                clippy::needless_pass_by_value,
                clippy::too_many_arguments,
                clippy::fn_params_excessive_bools,
                clippy::unnecessary_wraps,
                clippy::missing_const_for_fn,
                clippy::ptr_arg,
            )]
            /// Create a note.
            ///
            /// It belongs to the caller.
            pub(crate) fn create_note(
                tx: &Tx,
                body: String,
                pinned: bool,
                r#type: Kind,
                http: &Client,
            ) -> Result<Note, Failure> {
                Ok(Note { body })
            }
            #[doc(hidden)]
            #[allow(
                nonstandard_style,
                missing_debug_implementations,
                missing_copy_implementations,
                unreachable_pub
            )]
            #[non_exhaustive]
            pub(crate) struct create_note {}
            #[allow(deprecated, unused_imports, unused_qualifications)]
            const _: () = {
                use ::idempotent_tool::__private as __idempotent_tool;
                use __idempotent_tool::prelude::*;
                fn __idempotent_tool_default_1() -> bool {
                    <bool as ::core::default::Default>::default()
                }
                fn __idempotent_tool_default_2() -> Kind {
                    normal()
                }
                #[derive(__idempotent_tool::schemars::JsonSchema)]
                #[serde(deny_unknown_fields)]
                #[schemars(crate = "__idempotent_tool::schemars", rename = "create_note")]
                #[allow(
                    unreachable_pub,
                    missing_debug_implementations,
                    clippy::arbitrary_source_item_ordering
                )]
                pub struct __IdempotentToolArguments {
                    /// The text of the note.
                    #[schemars(length(min = 1, max = 10_000))]
                    body: String,
                    #[serde(default, rename = "pin")]
                    pinned: bool,
                    #[serde(default = "normal")]
                    r#type: Kind,
                }
                #[automatically_derived]
                impl __idempotent_tool::ToolArguments for __IdempotentToolArguments {
                    #[allow(unused_variables)]
                    fn from_json(
                        value: &__idempotent_tool::Value,
                    ) -> __idempotent_tool::Result<Self> {
                        ::core::result::Result::Ok(Self {
                            body: __idempotent_tool::argument::<String>(value, "body")?,
                            pinned: __idempotent_tool::argument_or::<
                                bool,
                            >(value, "pin", __idempotent_tool_default_1)?,
                            r#type: __idempotent_tool::argument_or::<
                                Kind,
                            >(value, "type", __idempotent_tool_default_2)?,
                        })
                    }
                    fn json_schema() -> __idempotent_tool::Schema {
                        __idempotent_tool::schema::<Self>()
                    }
                }
                #[automatically_derived]
                impl __idempotent_tool::Definition for create_note {
                    type Kind = __idempotent_tool::PlainFn;
                    type Context = Tx;
                    type Arguments = __IdempotentToolArguments;
                    type Returned = Result<Note, Failure>;
                    fn declaration() -> __idempotent_tool::Declaration {
                        __idempotent_tool::Declaration {
                            name: "create_note",
                            version: 2u32,
                            title: ::core::option::Option::None,
                            description: "Create a note.\n\nIt belongs to the caller.",
                            retention: ::core::time::Duration::new(7776000u64, 0u32),
                            tombstone: ::core::time::Duration::new(31536000u64, 0u32),
                            deadline: ::core::time::Duration::new(30u64, 0u32),
                            max_result: 1048576u64,
                            destructive: false,
                            open_world: false,
                            effects_outside: false,
                            authorize: ::core::option::Option::None,
                            external: ::core::option::Option::None,
                            module: ::core::module_path!(),
                        }
                    }
                    fn defaults() -> __idempotent_tool::Vec<__idempotent_tool::ArgumentDefault> {
                        __idempotent_tool::list([
                            __idempotent_tool::ArgumentDefault {
                                name: "pin",
                                make: || __idempotent_tool::default_json::<
                                    bool,
                                >(&__idempotent_tool_default_1()),
                            },
                            __idempotent_tool::ArgumentDefault {
                                name: "type",
                                make: || __idempotent_tool::default_json::<
                                    Kind,
                                >(&__idempotent_tool_default_2()),
                            },
                        ])
                    }
                    fn needs() -> __idempotent_tool::Vec<__idempotent_tool::Need> {
                        __idempotent_tool::list([__idempotent_tool::Need::of::<Client>()])
                    }
                }
                #[automatically_derived]
                impl __idempotent_tool::PlainDefinition for create_note {
                    #[allow(unused_variables)]
                    fn call(
                        context: &Self::Context,
                        state: &__idempotent_tool::State,
                        arguments: Self::Arguments,
                    ) -> ::core::result::Result<Self::Returned, __idempotent_tool::Failure> {
                        ::core::result::Result::Ok(
                            create_note(
                                context,
                                arguments.body,
                                arguments.pinned,
                                arguments.r#type,
                                __idempotent_tool::State::get::<Client>(state)?,
                            ),
                        )
                    }
                }
            };
        "##]],
    );
}

#[test]
fn arguments_as_one_struct() {
    check(
        quote!(
            operation = "create:v1",
            authorize = may_create,
            crate = crate::facade::tool
        ),
        quote! {
            #[cfg(feature = "notes")]
            fn create(tx: &Tx, #[arguments] Note { body, .. }: Note) -> Result<u64, Failure> {
                Ok(1)
            }
        },
        &expect![[r##"
            #[allow(
                clippy::needless_pass_by_value,
                clippy::too_many_arguments,
                clippy::fn_params_excessive_bools,
                clippy::unnecessary_wraps,
                clippy::missing_const_for_fn,
                clippy::ptr_arg,
            )]
            #[cfg(feature = "notes")]
            fn create(tx: &Tx, Note { body, .. }: Note) -> Result<u64, Failure> {
                Ok(1)
            }
            #[cfg(feature = "notes")]
            #[doc(hidden)]
            #[allow(
                nonstandard_style,
                missing_debug_implementations,
                missing_copy_implementations,
                unreachable_pub
            )]
            #[non_exhaustive]
            struct create {}
            #[cfg(feature = "notes")]
            #[allow(deprecated, unused_imports, unused_qualifications)]
            const _: () = {
                use crate::facade::tool::__private as __idempotent_tool;
                use __idempotent_tool::prelude::*;
                #[automatically_derived]
                impl __idempotent_tool::Definition for create {
                    type Kind = __idempotent_tool::PlainFn;
                    type Context = Tx;
                    type Arguments = Note;
                    type Returned = Result<u64, Failure>;
                    fn declaration() -> __idempotent_tool::Declaration {
                        const __IDEMPOTENT_TOOL_AUTHORIZER: __idempotent_tool::AuthorizeFn = may_create;
                        __idempotent_tool::Declaration {
                            name: "create",
                            version: 1u32,
                            title: ::core::option::Option::None,
                            description: "",
                            retention: ::core::time::Duration::new(2592000u64, 0u32),
                            tombstone: ::core::time::Duration::new(31536000u64, 0u32),
                            deadline: ::core::time::Duration::new(30u64, 0u32),
                            max_result: 1048576u64,
                            destructive: true,
                            open_world: false,
                            effects_outside: false,
                            authorize: ::core::option::Option::Some(__IDEMPOTENT_TOOL_AUTHORIZER),
                            external: ::core::option::Option::None,
                            module: ::core::module_path!(),
                        }
                    }
                }
                #[automatically_derived]
                impl __idempotent_tool::PlainDefinition for create {
                    #[allow(unused_variables)]
                    fn call(
                        context: &Self::Context,
                        state: &__idempotent_tool::State,
                        arguments: Self::Arguments,
                    ) -> ::core::result::Result<Self::Returned, __idempotent_tool::Failure> {
                        ::core::result::Result::Ok(create(context, arguments))
                    }
                }
            };
        "##]],
    );
}

#[test]
fn a_mistake_leaves_the_function() {
    check(
        quote!(operation = "create"),
        quote! {
            #[inline]
            #[idempotent_tool(operation = "create:v1")]
            pub fn create(
                tx: &Tx,
                /// The text.
                #[schemars(length(min = 1))]
                #[allow(unused)]
                body: String,
                #[state] http: &Client,
            ) -> Result<u64, Failure> {
                Ok(1)
            }
        },
        &expect![[r##"
            #[allow(
                clippy::needless_pass_by_value,
                clippy::too_many_arguments,
                clippy::fn_params_excessive_bools,
                clippy::unnecessary_wraps,
                clippy::missing_const_for_fn,
                clippy::ptr_arg,
            )]
            #[inline]
            pub fn create(
                tx: &Tx,
                #[allow(unused)]
                body: String,
                http: &Client,
            ) -> Result<u64, Failure> {
                Ok(1)
            }
            #[doc(hidden)]
            #[allow(
                nonstandard_style,
                missing_debug_implementations,
                missing_copy_implementations,
                unreachable_pub
            )]
            #[non_exhaustive]
            pub struct create {}
            const _: () = {
                use ::idempotent_tool::__private as __idempotent_tool;
                impl __idempotent_tool::Definition for create {
                    type Kind = __idempotent_tool::PlainFn;
                    type Context = Tx;
                    type Arguments = ();
                    type Returned = ::core::result::Result<(), __idempotent_tool::Failure>;
                    fn declaration() -> __idempotent_tool::Declaration {
                        loop {}
                    }
                }
                impl __idempotent_tool::PlainDefinition for create {
                    fn call(
                        _: &Self::Context,
                        _: &__idempotent_tool::State,
                        _: Self::Arguments,
                    ) -> ::core::result::Result<Self::Returned, __idempotent_tool::Failure> {
                        loop {}
                    }
                }
            };
            ::core::compile_error! {
                "an operation is `name:vN`, and `create` names no version; did you mean `create:v1`?"
            }
            ::core::compile_error! {
                "`#[idempotent_tool]` is applied twice; one function is one operation"
            }
        "##]],
    );
}
