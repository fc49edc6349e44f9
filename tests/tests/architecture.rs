//! The shape of the workspace: which crate may depend on which, who may speak NATS, and what every source file has.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const SERVICE: &[&str] = &["fanfold-ledger", "fanfold-wire", "fanfold-domain", "fanfold-process"];

/// Crates of the workspace and what each may depend on of ours; `None`: on everything but the tests.
const ALLOWED: &[(&str, Option<&[&str]>)] = &[
    ("fanfold-domain", Some(&[])),
    ("fanfold-wire", Some(&["fanfold-domain"])),
    ("fanfold-ledger", Some(&["fanfold-wire", "fanfold-domain"])),
    ("fanfold-sdk", Some(&["fanfold-wire"])),
    ("fanfold-process", Some(&[])),
    ("fanfold-api", Some(SERVICE)),
    ("fanfold-recorder", Some(SERVICE)),
    ("fanfold-dispatcher", Some(SERVICE)),
    ("fanfold-projector", Some(SERVICE)),
    ("fanfold-convergence", Some(SERVICE)),
    ("fanfold-console", Some(SERVICE)),
    ("fanfold-terminal", Some(&["fanfold-sdk", "fanfold-wire", "fanfold-process"])),
    ("fanfold", None),
    (MODEL, Some(&[])),
    (TESTS, None),
];
const TESTS: &str = "fanfold-tests";
/// What the workspace is built and tested with.
const TOOLCHAIN: &str = include_str!("../../rust-toolchain.toml");
const MANIFEST: &str = include_str!("../../Cargo.toml");
const README: &str = include_str!("../../README.md");
/// The reference model: says what must be true without any line of the product.
const MODEL: &str = "fanfold-model";
/// Who may name the NATS client.
const NATS: &[&str] = &["fanfold-ledger", "fanfold-sdk", TESTS];
/// What the pure core may use of others.
const DOMAIN_EXTERNAL: &[&str] = &["serde", "serde_json", "thiserror"];
/// What the reference model may use of others.
const MODEL_EXTERNAL: &[&str] = &["serde_json", "sha2", "hex"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A dependency that is built into the crate or its build script.
struct Edge {
    name: String,
    ours: bool,
}

/// Every package of the workspace with its edges; dev-dependencies are left out, except the model's.
fn packages() -> BTreeMap<String, Vec<Edge>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let output = Command::new(cargo).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let edges = |package: &Value| {
        // What the model is tested with must not be the product either.
        let all = package["name"] == MODEL;
        let dependencies = package["dependencies"].as_array().unwrap().iter().filter(|d| all || d["kind"] != "dev");
        dependencies.map(|d| Edge { name: text(&d["name"]), ours: !d["path"].is_null() }).collect()
    };
    metadata["packages"].as_array().unwrap().iter().map(|p| (text(&p["name"]), edges(p))).collect()
}

/// Edges that are not in the table.
fn forbidden(packages: &BTreeMap<String, Vec<Edge>>) -> Vec<String> {
    let mut found = Vec::new();
    for (package, edges) in packages {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| name == package) else {
            found.push(format!("{package} is not in the table"));
            continue;
        };
        for edge in edges {
            let allowed_of_ours = match allowed {
                Some(list) => list.contains(&edge.name.as_str()),
                None => edge.name != TESTS && (edge.name != MODEL || package == TESTS),
            };
            let wrong = (edge.ours && !allowed_of_ours)
                || (edge.name == "async-nats" && !NATS.contains(&package.as_str()))
                || (package == MODEL && !edge.ours && !MODEL_EXTERNAL.contains(&edge.name.as_str()))
                || (package == "fanfold-domain" && !edge.ours && !DOMAIN_EXTERNAL.contains(&edge.name.as_str()));
            if wrong {
                found.push(format!("{package} -> {}", edge.name));
            }
        }
    }
    found
}

#[test]
fn crates_depend_on_each_other_as_the_design_says() {
    let packages = packages();
    assert!(packages.len() >= 13, "{:?}", packages.keys());
    assert_eq!(forbidden(&packages), Vec::<String>::new());
}

#[test]
fn a_forbidden_edge_is_noticed() {
    let edge = |name: &str, ours| Edge { name: name.to_owned(), ours };
    let cases = [
        ("fanfold-domain", edge("tokio", false)),
        ("fanfold-domain", edge("fanfold-wire", true)),
        ("fanfold-wire", edge("async-nats", false)),
        ("fanfold-terminal", edge("async-nats", false)),
        ("fanfold-terminal", edge("fanfold-ledger", true)),
        ("fanfold", edge("async-nats", false)),
        ("fanfold-api", edge("fanfold-recorder", true)),
        ("fanfold-process", edge("fanfold-domain", true)),
        ("fanfold", edge(TESTS, true)),
        ("fanfold", edge(MODEL, true)),
        (MODEL, edge("fanfold-domain", true)),
        (MODEL, edge("serde", false)),
        ("fanfold-extra", edge("serde", false)),
    ];
    for (package, edge) in cases {
        let what = format!("{package} -> {}", edge.name);
        assert_eq!(forbidden(&BTreeMap::from([(package.to_owned(), vec![edge])])).len(), 1, "{what}");
    }
}

/// Whether a package, built by itself, has the bugs for the tests of the tests in it.
fn has_planted_bugs(package: &str) -> bool {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["tree", "--offline", "--edges", "features,normal,build", "--package", package, "--prefix", "none"];
    let output = Command::new(cargo).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    assert!(tree.contains("fanfold-domain"), "{tree}");
    tree.lines().any(|line| line.starts_with("fanfold-domain feature \"planted\""))
}

#[test]
fn the_product_is_built_without_planted_bugs() {
    assert!(!has_planted_bugs("fanfold"));
    assert!(has_planted_bugs(TESTS), "the check would not notice");
}

/// Every file of the tree that people write, without build output.
fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.to_string_lossy().into_owned();
        if entry.file_type().unwrap().is_dir() {
            let hidden = name.starts_with('.') && name != ".github";
            if !hidden && name != "target" && name != "node_modules" {
                files(&path, found);
            }
        } else if name != "Cargo.lock" {
            // The lock file is cargo's own and names where each crate is from.
            found.push(path);
        }
    }
}

fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&root(), &mut found);
    found
}

fn rust_sources() -> Vec<PathBuf> {
    sources().into_iter().filter(|path| path.extension().is_some_and(|e| e == "rs")).collect()
}

#[test]
fn every_module_begins_with_what_it_is() {
    let rust = rust_sources();
    assert!(rust.len() > 60, "{} files", rust.len());
    let bare: Vec<&PathBuf> = rust.iter().filter(|path| !std::fs::read_to_string(path).unwrap().starts_with("//!")).collect();
    assert!(bare.is_empty(), "no `//!` header: {bare:#?}");
}

#[test]
fn no_file_names_the_host_of_a_package_registry() {
    // Put together here, so that this file doesn't name one either.
    let hosts = [
        ["crates", "io"],
        ["npmjs", "org"],
        ["npmjs", "com"],
        ["pypi", "org"],
        ["pythonhosted", "org"],
        ["rubygems", "org"],
        ["golang", "org"],
        ["jsr", "io"],
        ["unpkg", "com"],
        ["jsdelivr", "net"],
        ["maven", "org"],
    ]
    .map(|parts| parts.join("."));
    for path in sources() {
        let bytes = std::fs::read(&path).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        for host in &hosts {
            assert!(!text.contains(host.as_str()), "{} names {host}", path.display());
        }
    }
}

/// Test names of the README's table of promises: what stands in backticks in a row's last column.
fn promised_tests(readme: &str) -> Vec<&str> {
    let table = readme.split("## What it promises").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = table.lines().filter(|l| l.starts_with("| ") && !l.starts_with("| promise"));
    rows.flat_map(|row| row.trim_end_matches('|').rsplit('|').next().unwrap().split('`').skip(1).step_by(2)).collect()
}

/// Those of the names that no test has.
fn without_a_test<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let sources: Vec<String> = rust_sources().iter().map(|p| std::fs::read_to_string(p).unwrap()).collect();
    names.iter().copied().filter(|name| !sources.iter().any(|s| s.contains(&format!("fn {name}(")))).collect()
}

#[test]
fn every_promise_of_the_readme_names_a_test_that_exists() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let promised = promised_tests(&readme);
    assert!(promised.len() > 20, "the table of promises was not found: {promised:?}");
    let missing = without_a_test(&promised);
    assert!(missing.is_empty(), "the README names tests that are not there: {missing:?}");
}

#[test]
fn every_fault_met_elsewhere_names_a_test_that_exists() {
    let page = std::fs::read_to_string(root().join("docs/faults.md")).unwrap();
    let rows = page.lines().filter(|l| l.starts_with("| ") && !l.contains("shown by"));
    let named: Vec<&str> =
        rows.flat_map(|row| row.trim_end_matches('|').rsplit('|').next().unwrap().split('`').skip(1).step_by(2)).collect();
    assert!(named.len() > 30, "the tables of faults were not found: {named:?}");
    let missing = without_a_test(&named);
    assert!(missing.is_empty(), "docs/faults.md names tests that are not there: {missing:?}");
}

#[test]
fn no_source_file_has_more_than_400_lines() {
    let long: Vec<String> = rust_sources()
        .iter()
        .map(|p| (p, std::fs::read_to_string(p).unwrap().lines().count()))
        .filter(|(_, lines)| *lines > 400)
        .map(|(p, lines)| format!("{}: {lines}", p.display()))
        .collect();
    assert!(long.is_empty(), "split these: {long:?}");
}

/// An older compiler than the tested one is promised nowhere.
#[test]
fn the_promised_compiler_is_the_tested_one() {
    let value = |text: &str, name: &str| {
        let line =
            text.lines().find(|l| l.split('=').next().is_some_and(|n| n.trim() == name)).unwrap_or_else(|| panic!("no {name}"));
        line.split('"').nth(1).unwrap().to_owned()
    };
    let (tested, promised) = (value(TOOLCHAIN, "channel"), value(MANIFEST, "rust-version"));
    assert!(tested == promised || tested.starts_with(&format!("{promised}.")), "{promised} is promised, {tested} is tested");
    assert!(README.contains(&format!("Rust {promised}")), "the README says another one than {promised}");
}
