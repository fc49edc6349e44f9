//! How a summary looks: as a table, a page, a spreadsheet.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use fanfold::cmd::doctor::{Check, Health, text};
use fanfold::render::summary::{Stores, SummaryDoc};
use fanfold::render::{csv, report, summary};
use fanfold_wire::record::StoreRecord;
use jiff::tz::TimeZone;
use serde_json::json;

fn doc() -> SummaryDoc {
    serde_json::from_value(json!({
        "planId": "p1", "title": "Logs", "type": "collect_log@1", "revision": 2, "kind": "update", "asOfSeq": 40,
        "previous": {"revision": 1, "asOfSeq": 30, "sha256": "aa"}, "verdict": "reserved", "total": 5, "targetsSha256": "bb",
        "counts": {"succeeded": 2, "failed": 1, "invalid": 0, "timedOut": 0, "offline": 2, "running": 0, "pending": 0, "cancelled": 0},
        "aggregates": [
            {"name": "lines", "op": "sum", "value": 123456, "results": 2},
            {"name": "byVersion", "op": "count_by", "value": {"1.2": 1, "1.3": 1}, "results": 2},
            {"name": "top", "op": "top_k", "value": [{"target": "S2", "value": 9}], "results": 2}
        ],
        "changed": ["S2"],
        "rows": [
            {"target": "S1", "set": "succeeded", "state": "SUCCEEDED", "attempt": 1, "result": {"lines": 3456, "note": "=1+1"}},
            {"target": "S2", "set": "succeeded", "state": "SUCCEEDED", "attempt": 2, "late": true, "result": {"lines": 120000, "levels": {"error": 9}}},
            {"target": "S3", "set": "failed", "state": "FAILED", "attempt": 3, "failure": "business",
             "error": {"code": "NO_SUCH_DATE", "message": "no logs of \"that\" day, sorry"}, "next": "mayRequeue"},
            {"target": "S4", "set": "offline", "state": "PENDING", "attempt": 0, "lastSeenMs": null, "next": "whenOnline"},
            {"target": "S5", "set": "offline", "state": "PENDING", "attempt": 0, "lastSeenMs": 1789000000000_i64, "next": "whenOnline"}
        ]
    }))
    .unwrap()
}

fn stores() -> Stores {
    let of = |id: &str, name: &str, region: &str| -> StoreRecord {
        serde_json::from_value(json!({"id": id, "name": name, "region": region})).unwrap()
    };
    [of("S1", "Alpha", "east"), of("S3", "Gamma", "east"), of("S4", "Delta", "west")]
        .into_iter()
        .map(|s| (s.id.to_string(), s))
        .collect()
}

#[test]
fn the_table_has_what_is_missing_first() {
    let expected = "\
plan      p1 (Logs)
type      collect_log@1
summary   revision 2, update, as of sequence 40
verdict   with reservations: not every target is in
targets   5: 2 succeeded, 1 failed, 2 offline (40.0 % succeeded)

lines      123,456 (of 2 results)
byVersion  1.2: 1, 1.3: 1 (of 2 results)
top        S2: 9 (of 2 results)

TARGET  NAME   REGION  SET        STATE      ATTEMPT  WHY                                        NEXT
S3      Gamma  east    failed     FAILED           3  NO_SUCH_DATE no logs of \"that\" day, sorry  may be requeued
S4      Delta  west    offline    PENDING          0  never seen                                 handed out when it is online
S5                     offline    PENDING          0  last seen 2026-09-10 00:26:40              handed out when it is online
S1      Alpha  east    succeeded  SUCCEEDED        1
S2                     succeeded  SUCCEEDED        2  came in late
";
    assert_eq!(summary::table(&doc(), &stores(), &TimeZone::UTC), expected);
}

#[test]
fn the_page_says_who_is_in_who_is_missing_and_why() {
    let expected = "\
# Logs

Plan `p1`, type `collect_log@1`. Revision 2 (update), published today, as of log sequence 40.

**Verdict: with reservations: not every target is in.** 2 of 5 targets are in (40.0 %).

## Missing, and why

### failed (1)

- S3 Gamma: NO_SUCH_DATE no logs of \"that\" day, sorry -> may be requeued

### offline (2)

- S4 Delta: never seen -> handed out when it is online
- S5: last seen 2026-09-10 00:26:40 -> handed out when it is online

## To be backfilled

2 will still be brought in and revise this summary: S4 Delta, S5.

## For a person

1 need a requeue or a follow-up plan: S3 Gamma.

## By region

| region | in | targets | share |
|---|--:|--:|--:|
| (no region) | 1 | 2 | 50.0 % |
| east | 1 | 2 | 50.0 % |
| west | 0 | 1 | 0.0 % |

## Totals

- lines: 123,456 (of 2 results)
- byVersion: 1.2: 1, 1.3: 1 (of 2 results)
- top: S2: 9 (of 2 results)

## In (2)

S1 Alpha, S2.

Of these came in after they had been given up: S2.

## Changed since revision 1

S2.
";
    assert_eq!(report::page(&doc(), "today", &stores(), &TimeZone::UTC), expected);
}

#[test]
fn a_full_plan_misses_nothing() {
    let mut doc = doc();
    doc.rows.truncate(2);
    doc.counts = serde_json::from_value(
        json!({"succeeded": 2, "failed": 0, "invalid": 0, "timedOut": 0, "offline": 0, "running": 0, "pending": 0, "cancelled": 0}),
    )
    .unwrap();
    doc.total = 2;
    let page = report::page(&doc, "today", &Stores::new(), &TimeZone::UTC);
    assert!(page.contains("Nothing is missing.") && !page.contains("backfilled") && !page.contains("By region"), "{page}");
}

#[test]
fn the_spreadsheet_has_a_row_a_target_and_the_results_fields_as_columns() {
    let expected = [
        "target,name,region,set,state,attempt,error code,message,last seen,late,result.levels,result.lines,result.note",
        "S1,Alpha,east,succeeded,SUCCEEDED,1,,,,,,3456,'=1+1",
        "S2,,,succeeded,SUCCEEDED,2,,,,yes,\"{\"\"error\"\":9}\",120000,",
        "S3,Gamma,east,failed,FAILED,3,NO_SUCH_DATE,\"no logs of \"\"that\"\" day, sorry\",,,,,",
        "S4,Delta,west,offline,PENDING,0,,,never,,,,",
        "S5,,,offline,PENDING,0,,,2026-09-10T00:26:40.000Z,,,,",
        "",
    ];
    assert_eq!(csv::summary(&doc(), &stores()), expected.join("\r\n"));
}

#[test]
fn a_result_that_is_no_object_has_a_column_of_its_own() {
    let mut doc = doc();
    doc.rows[0].result = Some(json!(7));
    let text = csv::summary(&doc, &Stores::new());
    let lines: Vec<&str> = text.split("\r\n").collect();
    assert!(lines[0].contains(",late,result,result.levels,result.lines"), "{}", lines[0]);
    assert!(!lines[0].contains("note") && lines[1].ends_with(",7,,"), "{}", lines[1]);
}

#[test]
fn findings_say_what_to_do() {
    let checks = [
        Check { health: Health::Ok, what: "api", found: "answers in 2 ms".into(), advice: "" },
        Check { health: Health::Bad, what: "projector", found: "it does not move".into(), advice: "start it" },
    ];
    let expected = "\
ok    api            answers in 2 ms
bad   projector      it does not move
                     -> start it
";
    assert_eq!(text(&checks), expected);
}
