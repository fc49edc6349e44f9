//! Store files: everything that is wrong is told at once with its line, and nothing is imported then.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::Path;

use common::{World, run};
use fanfold::cmd::plan::targets::of_file;
use fanfold::cmd::stores::parse::{PROBLEMS_SHOWN, stores};
use fanfold::exit::Exit;
use fanfold_ledger::port::Buckets;
use fanfold_wire::api::Problem;
use serde_json::{Value, json};

fn told(problems: &[Problem]) -> Vec<(&str, &str, &str)> {
    problems.iter().map(|p| (p.path.as_str(), p.code.as_str(), p.value.as_str())).collect()
}

#[test]
fn a_csv_file_is_read_whatever_the_case_of_its_headings() {
    let text = "\u{feff}ID,Name,REGION,Labels,time_zone\r\nSH_1,\"Xuhui, big\",east,size=big; open = 24h,asia/shanghai\r\n\r\nSH_2,,,,\r\n";
    let found = stores(Path::new("s.csv"), text.as_bytes()).unwrap();
    assert_eq!(
        serde_json::to_value(&found).unwrap(),
        json!([
            {"id": "SH_1", "name": "Xuhui, big", "region": "east", "timeZone": "Asia/Shanghai", "labels": {"size": "big", "open": "24h"}},
            {"id": "SH_2", "name": "", "region": "", "timeZone": "", "labels": {}}
        ])
    );
    let semicolons = stores(Path::new("s.txt"), b"id;name\nA;x,y\n").unwrap();
    assert_eq!(semicolons[0].name, "x,y");
}

#[test]
fn every_problem_of_a_csv_file_is_told_with_its_line() {
    let text = "\
id,name,region,labels,timeZone,colour
SH_1,a,east,,Asia/Shanghai,red
,b,,,,
SH_1,c,,,,
bad id,d,,size,Mars/Olympus,
SH_5,e,,a=1;a=2,,,too,many
\"SH_6\"x,f
SH_7,\"open
";
    let problems = stores(Path::new("s.csv"), text.as_bytes()).unwrap_err();
    assert_eq!(
        told(&problems),
        [
            ("line 1", "UNKNOWN_COLUMN", "colour"),
            ("line 3", "BAD_ID", ""),
            ("line 4", "DUPLICATE_STORE", "SH_1"),
            ("line 5", "BAD_LABEL", "size"),
            ("line 5", "BAD_ID", "bad id"),
            ("line 5", "BAD_TIME_ZONE", "Mars/Olympus"),
            ("line 6", "TOO_MANY_FIELDS", "8 fields"),
            ("line 6", "BAD_LABEL", "a"),
            ("line 7", "BAD_QUOTES", "SH_6"),
            ("line 8", "BAD_QUOTES", "open\n"),
        ]
    );
}

#[test]
fn files_that_are_no_store_files() {
    let cases: [(&str, &[u8], &str); 8] = [
        ("s.csv", b"", "NO_STORES"),
        ("s.csv", b"name,region\nA,b\n", "MISSING_COLUMN"),
        ("s.csv", b"id\n", "NO_STORES"),
        ("s.csv", b"id\n\xff\xfe\n", "NOT_UTF8"),
        ("s.json", b"{", "NOT_JSON"),
        ("s.json", b"{\"shops\": []}", "NOT_JSON"),
        ("s.json", b"[]", "NO_STORES"),
        ("s.json", b"7", "NOT_JSON"),
    ];
    for (name, bytes, code) in cases {
        let problems = stores(Path::new(name), bytes).unwrap_err();
        assert_eq!(problems[0].code, code, "{name} {:?}", String::from_utf8_lossy(bytes));
    }
    let many: String = std::iter::once("id\n".to_owned()).chain((0..PROBLEMS_SHOWN + 50).map(|_| "*\n".to_owned())).collect();
    let problems = stores(Path::new("s.csv"), many.as_bytes()).unwrap_err();
    assert_eq!(problems.len(), PROBLEMS_SHOWN + 1);
    assert_eq!(told(&problems).last(), Some(&("", "MORE_PROBLEMS", "50")));
}

#[test]
fn a_json_file_is_read_and_its_problems_have_lines() {
    let good = r#"{"stores": [{"id": "A", "labels": {"k": "v"}, "timeZone": "Europe/Berlin"}, {"id": "B", "labels": "x=1"}]}"#;
    let found = stores(Path::new("s.JSON"), good.as_bytes()).unwrap();
    assert_eq!((found.len(), found[0].time_zone.as_str(), found[1].labels["x"].as_str()), (2, "Europe/Berlin", "1"));
    let bad = "[\n  {\"id\": \"A\"},\n  {\"id\": 7},\n  {\"id\": \"A\",\n   \"timeZone\": \"X\"},\n  3,\n  {\"id\": \"C\", \"Colour\": \"red\"}\n]";
    let problems = stores(Path::new("s.json"), bad.as_bytes()).unwrap_err();
    assert_eq!(
        told(&problems),
        [
            ("line 3", "BAD_FIELD", "id"),
            ("line 3", "BAD_ID", ""),
            ("line 4", "DUPLICATE_STORE", "A"),
            ("line 4", "BAD_TIME_ZONE", "X"),
            ("line 6", "NOT_A_STORE", "3"),
            ("line 7", "UNKNOWN_FIELD", "Colour"),
        ]
    );
}

#[test]
fn targets_come_from_any_kind_of_file() {
    let ids = |name: &str, text: &str| of_file(Path::new(name), text.as_bytes());
    assert_eq!(ids("a.txt", "A\n# no\n\nB # the big one\r\n").unwrap(), ["A", "B"]);
    assert_eq!(ids("a.csv", "id,name\nA,x\n").unwrap(), ["A"]);
    assert_eq!(ids("a.json", r#"["A","B"]"#).unwrap(), ["A", "B"]);
    assert_eq!(ids("a.json", r#"[{"id":"A"}]"#).unwrap(), ["A"]);
    let problems = ids("a.txt", "A\nb c\n.\n").unwrap_err();
    assert_eq!(told(&problems), [("line 2", "BAD_TARGET", "b c"), ("line 3", "BAD_TARGET", ".")]);
}

#[tokio::test]
async fn an_import_writes_all_or_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let world = World::new();
    let bad = file("bad.csv", "id\nA\n*\n*\n");
    let ran = run(&world, &["stores", "import", &bad]).await;
    assert_eq!((ran.exit(), ran.code().as_str()), (Exit::Refused, "BAD_ID"));
    let expected = "\
error BAD_ID: 2 problems, the first: BAD_ID at line 3 (`*`): it does not begin with a letter or digit
  - BAD_ID at line 3 (`*`): it does not begin with a letter or digit
  - BAD_ID at line 4 (`*`): it does not begin with a letter or digit
";
    assert_eq!(ran.stderr.text(), expected);
    assert_eq!(run(&world, &["stores", "ls"]).await.out(), "no stores; `fanfold stores import FILE` takes them over\n");

    let good = file("good.csv", "id,name,region,timeZone\nA,Alpha,east,Asia/Shanghai\nB,Beta,west,\n");
    let ran = run(&world, &["stores", "import", &good, "--dry-run"]).await;
    assert!(ran.out().starts_with("2 stores would be imported"), "{}", ran.out());
    assert_eq!(world.ledger.get_terminal("store.A").await.unwrap(), None);
    let ran = run(&world, &["stores", "import", &good]).await;
    assert_eq!(ran.out(), "2 stores imported: 2 new, 0 changed, 0 as they were\n");
    let again = file("again.csv", "id,name,region,timeZone\nA,Alpha,east,Asia/Shanghai\nB,Beta 2,west,\nC,,,\n");
    let ran = run(&world, &["stores", "import", &again, "--json"]).await;
    let answer: Value = serde_json::from_str(&ran.out()).unwrap();
    assert_eq!(answer, json!({"stores": 3, "new": 1, "changed": 1, "same": 1, "dryRun": false}));
    let expected = "\
STORE  NAME    REGION  TIME ZONE
A      Alpha   east    Asia/Shanghai
B      Beta 2  west
C
3 stores
";
    assert_eq!(run(&world, &["stores", "ls"]).await.out(), expected);
}
