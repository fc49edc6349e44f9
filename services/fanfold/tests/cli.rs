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
            '|' | '>' if !quoted => break,
            ' ' if !quoted => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => word.push(c),
        }
    }
    words.extend(Some(word).filter(|w| !w.is_empty()));
    words
}

fn leaves(command: &clap::Command, path: &str, found: &mut Vec<(String, String)>) {
    if command.get_subcommands().next().is_none() {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        found.push((path.to_owned(), help));
    }
    for sub in command.get_subcommands().filter(|s| s.get_name() != "help" && !s.is_hide_set()) {
        leaves(sub, format!("{path} {}", sub.get_name()).trim_start(), found);
    }
}

#[test]
fn every_command_has_examples_and_they_can_be_said() {
    let mut found = Vec::new();
    leaves(&Cli::command(), "", &mut found);
    assert!(found.len() >= 20, "{found:?}");
    let plain = ["type ls", "exit-codes"];
    for (path, help) in found.iter().filter(|(path, _)| !plain.contains(&path.as_str())) {
        let joined = help.replace("\\\n", " ");
        let examples: Vec<&str> = joined.lines().filter(|l| l.starts_with("  fanfold ")).collect();
        assert!(examples.iter().any(|e| e.trim().starts_with(&format!("fanfold {path}"))), "{path} has no example");
        for example in examples {
            // What stands far right is a comment.
            let said = example.trim().split("  ").next().unwrap();
            let said = if example.contains("\\") || joined.contains("--expires") { example.trim() } else { said };
            let parsed = Cli::try_parse_from(words(said));
            assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
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
