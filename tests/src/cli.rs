//! The command line, as people and scripts use it.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

/// How long a command may take.
const WITHIN: Duration = Duration::from_secs(60);

/// How a command ended and what it said.
#[derive(Debug, Clone)]
pub struct Said {
    /// The command, for messages.
    pub command: String,
    /// Exit code; `None`: a signal.
    pub code: Option<i32>,
    /// stdout.
    pub stdout: String,
    /// stderr.
    pub stderr: String,
}

impl Said {
    /// Itself, if it ended with `code`.
    ///
    /// # Panics
    /// When it ended otherwise.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "`{}` said:\n{}\n{}", self.command, self.stdout, self.stderr);
        self
    }

    /// stdout as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("`{}` gave no JSON ({e}): {}", self.command, self.stdout))
    }

    /// stdout as JSON, one value a line.
    ///
    /// # Panics
    /// When a line is none.
    #[track_caller]
    pub fn json_lines(&self) -> Vec<Value> {
        let line = |l| serde_json::from_str(l).unwrap_or_else(|e| panic!("`{}` gave no JSON ({e}): {l}", self.command));
        self.stdout.lines().map(line).collect()
    }

    /// The error code of a `--json` answer.
    ///
    /// # Panics
    /// When it is no error.
    #[track_caller]
    pub fn error_code(&self) -> String {
        let json = self.json();
        let code = json.pointer("/error/code").and_then(Value::as_str);
        code.unwrap_or_else(|| panic!("`{}` is no error: {json}", self.command)).to_owned()
    }

    /// Itself, if stdout has every one of these.
    ///
    /// # Panics
    /// When one is missing.
    #[track_caller]
    pub fn shows(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.stdout.contains(part), "`{}` does not show `{part}`:\n{}", self.command, self.stdout);
        }
        self
    }
}

/// A command line bound to a server.
#[derive(Debug, Clone)]
pub struct Cli {
    program: String,
    url: String,
}

impl Cli {
    /// Commands of `program` against the server at `url`.
    pub fn new(program: &str, url: &str) -> Self {
        Self { program: program.to_owned(), url: url.to_owned() }
    }

    /// Runs a command to its end.
    ///
    /// # Panics
    /// When it can't be started or does not end.
    pub async fn run(&self, args: &[&str]) -> Said {
        let mut command = Command::new(&self.program);
        command.args(args).args(["--nats", &self.url, "--by", "tester"]).stdin(Stdio::null()).kill_on_drop(true);
        command.env_remove("FANFOLD_NATS").env_remove("FANFOLD_NATS_CREDS").env_remove("FANFOLD_LOG").env("TZ", "UTC");
        let output = tokio::time::timeout(WITHIN, command.output()).await;
        let output = output.unwrap_or_else(|_| panic!("`{}` did not end within {WITHIN:?}", args.join(" "))).expect("it starts");
        Said {
            command: args.join(" "),
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}
