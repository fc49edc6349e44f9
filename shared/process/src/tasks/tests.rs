//! Every way a task can end.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::convert::Infallible;
use std::time::Duration;

use super::*;

const LONG: Duration = Duration::from_secs(60);

fn waiting(shutdown: &Shutdown) -> impl Future<Output = Result<(), Infallible>> + use<> {
    let wait = shutdown.wait();
    async move {
        wait.await;
        Ok(())
    }
}

#[tokio::test]
async fn orderly_ends_are_no_failure() {
    let mut tasks = Tasks::new(Shutdown::new());
    tasks.spawn("once", async { Ok::<(), Infallible>(()) });
    tasks.spawn("other", async { Ok::<(), Infallible>(()) });
    let shutdown = tasks.shutdown().clone();
    assert_eq!(tasks.join(LONG).await, Ok(()));
    assert!(!shutdown.is_triggered());
}

#[tokio::test]
async fn an_error_ends_the_others_and_is_reported_by_name() {
    let shutdown = Shutdown::new();
    let mut tasks = Tasks::new(shutdown.clone());
    tasks.spawn("waiter", waiting(&shutdown));
    tasks.spawn("writer", async { Err::<(), _>("disk is full") });
    let failed = tasks.join(LONG).await.unwrap_err();
    assert!(shutdown.is_triggered());
    assert_eq!(failed.failures.len(), 1);
    assert_eq!(failed.failures[0].name, "writer");
    assert_eq!(failed.failures[0].kind, FailureKind::Error);
    assert_eq!(failed.to_string(), "TASK_FAILED: writer failed: disk is full");
}

#[tokio::test]
async fn a_panic_is_seen_without_anybody_joining() {
    let shutdown = Shutdown::new();
    let mut tasks = Tasks::new(shutdown.clone());
    tasks.spawn("reader", async {
        if true {
            panic!("number {}", 7);
        }
        Ok::<(), Infallible>(())
    });
    shutdown.wait().await;
    let failed = tasks.join(LONG).await.unwrap_err();
    assert_eq!(failed.failures[0].kind, FailureKind::Panic);
    assert_eq!(failed.failures[0].message, "number 7");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ignores_the_shutdown_is_named() {
    let shutdown = Shutdown::new();
    let mut tasks = Tasks::new(shutdown.clone());
    tasks.spawn("deaf", std::future::pending::<Result<(), Infallible>>());
    tasks.spawn("waiter", waiting(&shutdown));
    shutdown.trigger();
    let failed = tasks.join(Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(failed.failures.len(), 1, "{failed}");
    assert_eq!(failed.failures[0].name, "deaf");
    assert_eq!(failed.failures[0].kind, FailureKind::Stuck);
}

#[tokio::test]
async fn dropping_the_set_aborts_its_tasks() {
    let (held, mut gone) = tokio::sync::oneshot::channel::<()>();
    let mut tasks = Tasks::new(Shutdown::new());
    tasks.spawn("holder", async move {
        let _held = held;
        std::future::pending::<Result<(), Infallible>>().await
    });
    drop(tasks);
    assert!((&mut gone).await.is_err(), "the task's value was dropped");
}
