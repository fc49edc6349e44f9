//! Small logs written by hand.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod plan_stories;
mod rows;
mod support;
mod task_stories;
mod violations;

use crate::table::TABLE;
use crate::{ALL_ROWS, Model};

#[test]
fn every_row_of_the_table_is_named_once() {
    let mut names: Vec<&str> = TABLE.iter().map(|row| row.name).collect();
    names.extend(["failure: business", "failure: exhausted", "failure: again", "absorbed: ended an attempt"]);
    assert_eq!(names, ALL_ROWS);
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ALL_ROWS.len());
    assert_eq!(Model::new().rows().len(), ALL_ROWS.len());
}

#[test]
fn garbage_is_counted_and_nothing_else() {
    let mut model = Model::new();
    let messages: [(&str, &[u8]); 8] = [
        ("", b""),
        ("ff.plan.p.submitted", b"not json"),
        ("ff.plan.p.submitted", b"{}"),
        ("ff.plan.p.closed", br#"{"specversion":"1.0","type":"fanfold.plan.closed.v1","data":{}}"#),
        ("ff.task.p.t.main.hq.t", b"[1,2"),
        ("ff.task.p.t.main.by.t", br#"{"specversion":"1.0","type":"fanfold.attempt.started.v1","data":{"attempt":-1}}"#),
        ("ff.task.p.t.main.sideways.t", br#"{"specversion":"1.0","type":"fanfold.attempt.started.v1","data":{}}"#),
        ("ff.other", &[0xff, 0xfe]),
    ];
    for (seq, (subject, payload)) in (1..).zip(messages) {
        model.feed(seq, 0, subject, payload);
    }
    assert_eq!((model.garbage(), model.plans().count()), (8, 0));
}
