#![allow(clippy::unwrap_used)]
use fanfold_sdk::journal::*;
use fanfold_sdk::wire::domain::ids::*;
#[tokio::test]
async fn full() {
    let Ok(dir) = std::env::var("FULL_DIR") else { return };
    let path = std::path::Path::new(&dir).join("j.redb");
    let j = DiskJournal::open(DiskOptions { path: path.clone(), move_damaged_aside: false }).unwrap();
    let t = TerminalId::new("A").unwrap();
    j.load(&t).await.unwrap();
    let mut ok = 0;
    let mut err = None;
    for n in 1..2000u32 {
        let r = j
            .write(
                &t,
                vec![Op::Put {
                    task: TaskId::parse("p.A.main").unwrap(),
                    attempt: n,
                    record: Record::Finished { end: EndKind::Failed, report: vec![b'x'; 20000].into() },
                }],
            )
            .await;
        if let Err(e) = r {
            err = Some(e);
            break;
        }
        ok = n;
    }
    eprintln!("ok {ok} then {err:?}");
    eprintln!("probe {:?}", j.write(&t, vec![]).await);
    std::fs::remove_file(std::path::Path::new(&dir).join("ballast")).unwrap();
    for _ in 0..20 {
        let r = j.write(&t, vec![]).await;
        eprintln!("probe {r:?}");
        if r.is_ok() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    eprintln!("rows {}", j.load(&t).await.unwrap().rows.len());
}
