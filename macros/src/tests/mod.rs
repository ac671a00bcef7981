//! Tests of the whole attribute on tokens: what passes through, and what is said.

mod expansions;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::quote;

use crate::expand::idempotent_tool;

/// The mistakes that the attribute reports, in order.
fn mistakes(args: TokenStream, item: TokenStream) -> Vec<String> {
    let tokens: Vec<TokenTree> = idempotent_tool(args, item).into_iter().collect();
    let mut messages = Vec::new();
    for window in tokens.windows(3) {
        if let [
            TokenTree::Ident(name),
            TokenTree::Punct(_),
            TokenTree::Group(group),
        ] = window
            && name == "compile_error"
        {
            assert_eq!(
                group.delimiter(),
                Delimiter::Brace,
                "an item needs no semicolon then"
            );
            messages.push(syn::parse2::<syn::LitStr>(group.stream()).unwrap().value());
        }
    }
    messages
}

/// `tokens` as `macro_rules` passes a fragment.
fn fragment(tokens: TokenStream) -> TokenStream {
    TokenTree::Group(Group::new(Delimiter::None, tokens)).into()
}

/// The tokens of the expansion, each separated by a space.
fn flat(args: TokenStream, item: TokenStream) -> String {
    idempotent_tool(args, item).to_string()
}

fn operation() -> TokenStream {
    quote!(operation = "create_note:v1")
}

#[test]
fn a_half_typed_body_passes_through() {
    let item =
        quote!(fn create(tx: &Tx, body: String) -> Result<u64, Failure> { let x = body. ; if let });
    let expansion = flat(operation(), item);
    assert!(!expansion.contains("compile_error"), "{expansion}");
    assert!(
        expansion.contains("{ let x = body . ; if let }"),
        "{expansion}"
    );
}

#[test]
fn the_body_is_not_looked_into() {
    let item = quote! {
        fn create(tx: &Tx) -> Result<u64, Failure> {
            #![allow(unused)]
            macro_rules! twice { ($e:expr) => { $e * 2 } }
            return Ok(twice!(1));
        }
    };
    let body = "{ # ! [allow (unused)] macro_rules ! twice { ($ e : expr) => { $ e * 2 } } return Ok (twice ! (1)) ; }";
    assert!(flat(operation(), item).contains(body));
}

#[test]
fn what_is_no_function_is_left_as_it_is() {
    for item in [
        quote!(
            struct Note {
                #[serde(default)]
                body: String,
            }
        ),
        quote!(
            const X: u8 = 1;
        ),
        quote!(
            mod notes {}
        ),
        quote!(),
        quote!(pub),
        quote!(fn),
        quote!(fn create(tx: &Tx, body:)),
    ] {
        let expansion = flat(operation(), item.clone());
        assert!(expansion.starts_with(&item.to_string()), "{expansion}");
        assert_eq!(mistakes(operation(), item.clone()).len(), 1, "{item}");
    }
}

#[test]
fn malformed_tokens_are_mistakes_and_no_panics() {
    for args in [
        quote!(=),
        quote!(,),
        quote!(, ,),
        quote!(operation =),
        quote!(operation = = "a:v1"),
        quote!(operation == "a:v1"),
        quote!(operation: "a:v1"),
        quote!(operation = "a:v1" "b:v1"),
        quote!(operation = -),
        quote!("a:v1"),
        quote!((operation = "a:v1")),
        quote!(operation = "a:v1", 'a),
        quote!(operation = b"a:v1"),
        quote!(operation = c"a:v1"),
        quote!(::operation = "a:v1"),
        quote!(r#operation = if),
        quote!(crate = ),
        quote!(crate = <T as Tr>::X),
        quote!(authorize = <T>::may),
        quote!(max_result = 99999999999999999999999999999999999999999),
        quote!(max_result = 1u64),
    ] {
        assert!(!mistakes(args.clone(), function()).is_empty(), "{args}");
    }
}

fn function() -> TokenStream {
    quote!(
        fn create(tx: &Tx) -> Result<u64, Failure> {
            Ok(1)
        }
    )
}

#[test]
fn order_and_a_trailing_comma_mean_nothing() {
    let one = flat(
        quote!(operation = "a:v1", retention = "1d", title = "A"),
        function(),
    );
    let other = flat(
        quote!(title = "A", retention = "24h", operation = "a:v1",),
        function(),
    );
    assert_eq!(one, other);
    assert!(!one.contains("compile_error"));
}

#[test]
fn an_expansion_is_the_same_each_time() {
    assert_eq!(flat(operation(), function()), flat(operation(), function()));
}

#[test]
fn all_mistakes_are_reported_and_no_consequences() {
    let item = quote! {
        async fn create<T>(body: &str, idempotency_key: String, #[serde(flatten)] rest: T) -> ! {}
    };
    let messages = mistakes(quote!(opertion = "a:v1", deadline = "0s", retention), item);
    let begins = [
        "`retention` needs a value",
        "unknown argument `opertion`",
        "the duration is zero",
        "a transactional tool can't be `async`",
        "a tool can't be generic",
        "the first parameter is the tool's context",
        "every tool has the argument `idempotency_key`",
        "a flattened argument",
        "a tool answers its caller",
    ];
    for begin in begins {
        assert_eq!(
            messages.iter().filter(|m| m.starts_with(begin)).count(),
            1,
            "{begin}: {messages:#?}"
        );
    }
    // What is missing may be what was misspelled.
    assert!(
        !messages.iter().any(|m| m.starts_with("missing")),
        "{messages:#?}"
    );
}

#[test]
fn messages_have_one_grammar() {
    let item = quote! {
        #[idempotent_tool]
        const unsafe extern "C" fn create<T>(
            #[state] self_: Tx,
            (a, b): (&str, Cow<'_, str>),
            #[serde(skip, alias = "x", other)] #[schemars(rename = "y")] c: IndexSet<Self>,
            #[arguments] #[state] d: X,
            #[state(1)] #[cfg(x)] e: X,
            ...
        ) where T: Copy {}
    };
    let messages = mistakes(
        quote!(operation = "A", title = "", crate = x, destructive),
        item,
    );
    assert!(15 < messages.len(), "{messages:#?}");
    for message in messages {
        let first = message.chars().next().unwrap();
        assert!(first.is_lowercase() || first == '`', "{message}");
        assert!(!message.ends_with('.'), "{message}");
        assert!(
            message.contains(';') || message.contains("expected"),
            "fact; remedy: {message}"
        );
    }
}

#[test]
fn fragments_of_macro_rules_are_read() {
    let name = fragment(quote!("create:v1"));
    let flag = fragment(fragment(quote!(false)));
    let context = fragment(quote!(&Tx));
    let vis = fragment(quote!(pub));
    let ty = fragment(quote!(String));
    let output = fragment(quote!(Result<u64, Failure>));
    let item =
        quote!(#vis fn create(tx: #context, body: #ty, #[state] x: #context) -> #output { Ok(1) });
    assert_eq!(
        mistakes(quote!(operation = #name, destructive = #flag), item),
        [""; 0]
    );
    let borrowed = fragment(quote!(&str));
    let item = quote!(fn create(tx: #context, body: #borrowed) -> Result<u64, Failure> { Ok(1) });
    assert_eq!(mistakes(operation(), item).len(), 1);
}

#[test]
fn raw_names_are_plain_in_json() {
    let item = quote!(
        fn r#match(tx: &Tx, #[serde(default)] r#type: u8) -> Result<u64, Failure> {
            Ok(1)
        }
    );
    let expansion = flat(operation(), item);
    assert!(expansion.contains("struct r#match { }"), "{expansion}");
    assert!(expansion.contains(r#"name : "type""#), "{expansion}");
    let item = quote!(
        fn create(tx: &Tx, r#idempotency_key: u8) -> Result<u64, Failure> {
            Ok(1)
        }
    );
    assert_eq!(mistakes(operation(), item).len(), 1);
}

#[test]
fn descriptions_come_from_documentation() {
    let text = |docs: TokenStream| {
        let expansion = flat(
            operation(),
            quote!(#docs fn create(tx: &Tx) -> Result<u64, Failure> { Ok(1) }),
        );
        let (_, rest) = expansion.split_once("description : ").unwrap();
        rest.split_once(" , retention").unwrap().0.to_owned()
    };
    assert_eq!(text(quote!()), r#""""#);
    assert_eq!(text(quote!(#[doc = " One."])), r#""One.""#);
    assert_eq!(
        text(
            quote!(#[doc = " One."] #[doc = ""] #[doc = " - two"] #[doc = "   more "] #[doc = ""])
        ),
        r#""One.\n\n- two\n  more""#
    );
    assert_eq!(
        text(quote!(#[doc = "\n    One.\n      two\n"])),
        r#""\nOne.\n  two""#
    );
    assert_eq!(
        text(quote!(#[doc = " One."] #[doc = include_str!("x.md")] #[doc = " Two."])),
        r#":: core :: concat ! ("One.\n" , include_str ! ("x.md") , "\nTwo.")"#
    );
    assert_eq!(
        text(quote!(#[doc(hidden)] #[doc = " \"Q\" \\ {x}"])),
        r#""\"Q\" \\ {x}""#
    );
}

#[test]
fn conditions_of_the_function_are_those_of_its_type() {
    let item = quote!(
        #[cfg(unix)]
        #[inline]
        fn create(tx: &Tx) -> Result<u64, Failure> {
            Ok(1)
        }
    );
    assert_eq!(flat(operation(), item).matches("# [cfg (unix)]").count(), 3);
}

#[test]
fn empty_parentheses_are_no_arguments() {
    assert_eq!(
        mistakes(TokenStream::new(), function()),
        mistakes(quote!(), function())
    );
    assert_eq!(mistakes(TokenStream::new(), function()).len(), 1);
}

#[test]
fn what_a_tool_cannot_be_is_told_at_its_token() {
    for (item, part) in [
        (
            quote!(
                fn create<const N: usize>(tx: &Tx) -> Result<u64, Failure> {
                    Ok(1)
                }
            ),
            "generic",
        ),
        (
            quote!(
                fn create(self: Arc<Self>, tx: &Tx) -> Result<u64, Failure> {
                    Ok(1)
                }
            ),
            "self",
        ),
        (
            quote!(
                fn create(tx: &Tx, #[cfg_attr(test, x)] body: String) -> Result<u64, Failure> {
                    Ok(1)
                }
            ),
            "cfg_attr",
        ),
    ] {
        let found = mistakes(operation(), item);
        assert!(
            found.iter().any(|message| message.contains(part)),
            "{part}: {found:?}"
        );
    }
}
