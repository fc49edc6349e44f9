//! The command line itself: consistent, documented, and every example of the help can be said.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use clap::{CommandFactory, Parser};
use fanfold::cli::Cli;

#[test]
fn verify_cli() {
    Cli::command().debug_assert();
}

/// Splits as a shell does, as far as the examples need it; ends at a pipe, a redirection or a comment.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            '|' | '>' | '#' if !quoted => break,
            ' ' if !quoted => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => word.push(c),
        }
    }
    assert!(!quoted, "a quotation is open: {line}");
    words.extend(Some(word).filter(|w| !w.is_empty()));
    words
}

fn leaves(command: &clap::Command, path: &str, found: &mut Vec<(String, clap::Command)>) {
    if command.get_subcommands().next().is_none() {
        found.push((path.to_owned(), command.clone()));
    }
    for sub in command.get_subcommands().filter(|s| s.get_name() != "help" && !s.is_hide_set()) {
        leaves(sub, format!("{path} {}", sub.get_name()).trim_start(), found);
    }
}

/// Every command with what its help says after the options.
fn helps() -> Vec<(String, clap::Command, String)> {
    let mut found = Vec::new();
    leaves(&Cli::command(), "", &mut found);
    assert!(found.len() >= 20, "{found:?}");
    let text = |c: &clap::Command| c.get_after_help().map(ToString::to_string).unwrap_or_default();
    found.into_iter().map(|(path, command)| (path, command.clone(), text(&command))).collect()
}

/// The examples of a help, each on one line.
fn examples(help: &str) -> Vec<String> {
    let joined = help.replace("\\\n", " ");
    joined.lines().filter(|l| l.starts_with("  fanfold ")).map(|l| l.trim().to_owned()).collect()
}

#[test]
fn every_command_has_examples_and_they_can_be_said() {
    let plain = ["type ls", "exit-codes"];
    let repository = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (path, _, help) in helps().into_iter().filter(|(path, ..)| !plain.contains(&path.as_str())) {
        let examples = examples(&help);
        assert!(examples.iter().any(|e| e.starts_with(&format!("fanfold {path}"))), "{path} has no example");
        for example in examples {
            let said = words(&example);
            let parsed = Cli::try_parse_from(&said);
            assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
            // What names something of this repository names something that is there.
            for named in said.iter().filter(|w| w.starts_with("docs/") || w.starts_with("schemas/")) {
                assert!(repository.join(named).exists(), "{example}: there is no {named}");
            }
            // A moment that a plan must lie before goes stale; a duration does not.
            let moments = said.windows(2).filter(|w| ["--deadline", "--expires"].contains(&w[0].as_str()));
            assert!(moments.into_iter().all(|w| !w[1].contains('-')), "{example}: the moment will have passed");
        }
    }
}

#[test]
fn what_follows_the_options_is_never_wrapped_so_that_examples_can_be_copied() {
    for (path, command, help) in helps() {
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{path}: more than 80 columns: {line}");
        }
        for columns in [80, 110] {
            let shown = command.clone().term_width(columns).render_long_help().to_string();
            for line in help.lines().filter(|l| !l.is_empty()) {
                assert!(shown.lines().any(|s| s == line), "{path} at {columns} columns cuts: {line}\n{shown}");
            }
        }
    }
}

#[test]
fn contradictions_are_usage_errors() {
    let bad: [&[&str]; 10] = [
        &["plan", "submit"],
        &["plan", "submit", "plan.json", "--type", "x"],
        &["plan", "submit", "--type", "x"],
        &["plan", "submit", "--type", "x", "--input", "{}", "--targets", "a", "--deadline", "soon"],
        &["plan", "show", "a.b"],
        &["task", "show", "a.b"],
        &["task", "requeue", "p1"],
        &["task", "requeue", "p1", "--failed", "--task", "a"],
        &["replay", "--plan", "p", "--verify", "--until", "3"],
        &["terminal", "run", "--id", "*", "--root", "."],
    ];
    for args in bad {
        assert!(Cli::try_parse_from(std::iter::once(&"fanfold").chain(args)).is_err(), "{args:?}");
    }
}
