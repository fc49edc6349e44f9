//! Exit codes: what a script may branch on. They are part of the interface and never change their meaning.

use std::process::ExitCode;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It was done, or the answer is yes.
    Ok,
    /// It was done and the answer is no: a verification is false, a watched plan failed, the doctor found something bad.
    No,
    /// The command line makes no sense.
    Usage,
    /// What was handed over is wrong and was refused.
    Refused,
    /// No server, or no service, or it could not answer.
    Unreachable,
    /// There is nothing of that name.
    NotFound,
    /// It collides with what is there: another content under the same id, a plan that is closed.
    Conflict,
    /// A person interrupted it.
    Interrupted,
}

impl Exit {
    /// All of them, in the order of their numbers.
    pub const ALL: [Exit; 8] =
        [Exit::Ok, Exit::No, Exit::Usage, Exit::Refused, Exit::Unreachable, Exit::NotFound, Exit::Conflict, Exit::Interrupted];

    /// The number the process ends with.
    pub fn number(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::No => 1,
            Exit::Usage => 2,
            Exit::Refused => 3,
            Exit::Unreachable => 4,
            Exit::NotFound => 5,
            Exit::Conflict => 6,
            Exit::Interrupted => 130,
        }
    }

    /// What it means, in one line.
    pub fn meaning(self) -> &'static str {
        match self {
            Exit::Ok => "done, or the answer is yes",
            Exit::No => "the answer is no: verification false, a watched plan failed, the doctor found something bad",
            Exit::Usage => "the command line makes no sense",
            Exit::Refused => "the input is wrong and was refused; nothing was changed",
            Exit::Unreachable => "no server or no service answered",
            Exit::NotFound => "there is nothing of that name",
            Exit::Conflict => "it collides with what is there: other content under the same id, a closed plan",
            Exit::Interrupted => "interrupted",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.number())
    }
}

/// The table as help shows it.
pub const TABLE: &str = "\
Exit codes:
    0  done, or the answer is yes
    1  the answer is no: verification false, a watched plan failed, the doctor found something bad
    2  the command line makes no sense
    3  the input is wrong and was refused; nothing was changed
    4  no server or no service answered
    5  there is nothing of that name
    6  it collides with what is there: other content under the same id, a closed plan
  130  interrupted";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_what_the_codes_are() {
        let lines: Vec<String> = Exit::ALL.iter().map(|e| format!("{:>5}  {}", e.number(), e.meaning())).collect();
        assert_eq!(TABLE, format!("Exit codes:\n{}", lines.join("\n")));
    }
}
