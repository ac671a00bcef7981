//! The page that names the tests of each promise: the tests exist, and no promise is forgotten.

use std::{collections::BTreeMap, fs, path::Path};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// What the page names under each heading: files and tests in them.
fn named() -> BTreeMap<String, Vec<(String, String)>> {
    let page = include_str!("../../docs/reliability.md");
    let mut named: BTreeMap<String, Vec<_>> = BTreeMap::new();
    let mut heading = String::new();
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("### ") {
            title
                .split(':')
                .next()
                .unwrap_or_default()
                .clone_into(&mut heading);
            assert!(
                named.insert(heading.clone(), Vec::new()).is_none(),
                "{heading} twice"
            );
        } else if let Some(list) = line.strip_prefix("- `") {
            let (file, tests) = list.split_once("`: ").expect("a file, then its tests");
            for test in tests.split(", ") {
                let test = test
                    .strip_prefix('`')
                    .and_then(|test| test.strip_suffix('`'));
                let test = test.unwrap_or_else(|| panic!("{line}"));
                let tests = named.get_mut(&heading).expect("a heading before its tests");
                tests.push((file.to_owned(), test.to_owned()));
            }
        }
    }
    named
}

#[test]
fn every_test_that_the_page_names_is_there() {
    for (heading, tests) in named() {
        for (file, test) in tests {
            let text = fs::read_to_string(Path::new(ROOT).join(&file))
                .unwrap_or_else(|error| panic!("{heading}: {file}: {error}"));
            let (before, _) = text
                .split_once(&format!("fn {test}("))
                .unwrap_or_else(|| panic!("{heading}: {file} has no `{test}`"));
            // Its attributes and its comment stand right above it.
            let above = before.rsplit("\n\n").next().unwrap_or_default();
            assert!(
                above.contains("#[test]") || above.contains("#[tokio::test"),
                "{heading}: `{test}` of {file} is no test"
            );
        }
    }
}

#[test]
fn every_promise_and_every_invariant_has_a_test() {
    let design = include_str!("../../docs/design.md");
    let promises = design.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("- **")?.split_once("**")?;
        let number = name.strip_prefix('P')?;
        number.parse::<u32>().ok().map(|_| name.to_owned())
    });
    let architecture = include_str!("../../docs/architecture.md");
    let invariants = architecture.lines().filter_map(|line| {
        let (number, rest) = line.split_once(". **")?;
        number.parse::<u32>().ok()?;
        let (title, _) = rest.split_once("**")?;
        Some(title.trim_end_matches('.').to_owned())
    });
    let mut expected: Vec<_> = promises.chain(invariants).collect();
    assert!(expected.len() >= 12 + 9, "{expected:?}");
    expected.sort();
    let named = named();
    let headings: Vec<_> = named.keys().cloned().collect();
    assert_eq!(headings, expected);
    for (heading, tests) in named {
        assert!(!tests.is_empty(), "{heading} has no test");
    }
}
