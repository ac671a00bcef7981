//! What the pages say of themselves: the added lines are few, and the links lead somewhere.

use std::{fs, path::Path};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[test]
fn an_existing_server_takes_fewer_than_40_lines() {
    let page = include_str!("../../docs/guide/existing-rmcp-server.md");
    let (mut added, mut is_added, mut blocks) = (0, false, 0);
    for line in page.lines().map(str::trim) {
        match line {
            "// +" => {
                is_added = true;
                blocks += 1;
            }
            "// -" => is_added = false,
            _ => added += usize::from(is_added),
        }
    }
    assert_eq!(blocks, 2);
    // And the one line that is changed.
    assert!((20..39).contains(&added), "{added}");
}

#[test]
fn every_link_leads_to_a_file() {
    let root = Path::new(ROOT);
    let mut pages = vec![root.join("README.md"), root.join("CHANGELOG.md")];
    for folder in ["docs", "docs/guide"] {
        let entries = fs::read_dir(root.join(folder)).unwrap();
        pages.extend(entries.map(|entry| entry.unwrap().path()));
    }
    let mut links = 0;
    for page in pages.iter().filter(|page| page.is_file()) {
        let text = fs::read_to_string(page).unwrap();
        for part in text.split("](").skip(1) {
            let link = part.split([')', '#']).next().unwrap();
            if link.is_empty() || link.starts_with("http") {
                continue;
            }
            let target = page.parent().unwrap().join(link);
            assert!(target.exists(), "{}: {link}", page.display());
            links += 1;
        }
    }
    assert!(links > 10, "{links}");
}
