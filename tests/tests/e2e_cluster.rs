//! Three servers: each may be killed, deposed or restarted under load. Dispatch goes on, nothing is lost, nothing is done twice.
//!
//! What is measured: between two hand-outs of the plan under way the log's own times say how long nothing was handed out, and the
//! servers' monitoring says since when the log had a leader by then.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::path::Path;
use std::time::Duration;

use fanfold_domain::plan::SummaryKind;
use fanfold_ledger::port::Log;
use fanfold_process::clock::Clock;
use fanfold_terminal::host::Moment;
use fanfold_tests::cluster::{Cluster, ELECTED, Watch};
use fanfold_tests::fleet::{Fleet, account_of, ids};
use fanfold_tests::hq::Hq;
use fanfold_tests::plans::{noop, with};
use fanfold_tests::process::Proc;
use fanfold_tests::stack::BEAT_MS;
use fanfold_tests::wait::{SOON, until};
use rustix::process::Signal;
use serde_json::{Value, json};

const BIN: &str = env!("CARGO_BIN_EXE_fanfold-under-test");

/// Clusters run one at a time: what is measured is theirs alone.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// From a leader being there to the next hand-out.
const AFTER_LEADER_MS: i64 = 2_000;
/// From a kill to the next hand-out.
const AFTER_KILL_MS: i64 = 20_000;
/// Terminals on a server that dies come back within this, each at a moment of its own; where all were on it nobody can do anything.
const RECONNECT_MS: i64 = 2_000;
/// How long two servers are away.
const OUTAGE: Duration = Duration::from_secs(4);
/// Stores of the run.
const STORES: usize = 240;

fn now_ms() -> i64 {
    Clock::system().now_ms()
}

/// One plan after the other on the same cluster, each with one disturbance in the middle.
struct Run {
    cluster: Cluster,
    hq: Hq,
    east: Fleet,
    west: Fleet,
    watch: Watch,
    plans: Vec<String>,
    table: Vec<String>,
}

impl Run {
    async fn start() -> Self {
        let mut cluster = Cluster::start(BIN, true).await;
        cluster.serve("front", &["api", "recorder", "projector"]).await;
        cluster.serve("back", &["dispatcher", "convergence"]).await;
        let hq = cluster.hq().await;
        let east = cluster.fleet("east", &ids(1, STORES / 2)).work_ms(50, 300).start().await;
        let west = cluster.fleet("west", &ids(STORES / 2 + 1, STORES)).work_ms(50, 300).start().await;
        hq.online(STORES).await;
        cluster.whole().await;
        let watch = cluster.watch();
        Self { cluster, hq, east, west, watch, plans: Vec::new(), table: Vec::new() }
    }

    fn done(&self) -> usize {
        account_of(&[&self.east, &self.west]).seen(Moment::Done)
    }

    /// Submits a plan and returns when its work is under way.
    async fn under_way(&mut self, plan: &str, in_flight: u32) {
        let before = self.done();
        let document = with(noop(plan, &ids(1, STORES)), json!({ "limits": { "inFlight": in_flight } }));
        self.hq.submit(&document).await;
        self.plans.push(plan.to_owned());
        until(&format!("{plan} is under way"), SOON, async || (self.done() >= before + STORES / 12).then_some(())).await;
    }

    /// Waits for the plan's end, and says how long its hand-outs were interrupted by what began at `from_ms`; `bound_ms`: from a
    /// leader being there to the next one.
    async fn over(&mut self, plan: &str, from_ms: i64, bound_ms: i64) {
        let last = self.hq.summary(plan, SummaryKind::Final, ELECTED * 2).await;
        assert_eq!(last.counts.succeeded as usize, STORES, "{plan}: {:?}", last.counts);
        let events = self.hq.events(plan).await;
        let dispatched: Vec<i64> = events.iter().filter(|e| e.name == "task.dispatched").map(|e| e.time_ms).collect();
        assert_eq!(dispatched.len(), STORES, "{plan}: each store once");
        let later = dispatched.iter().filter(|at| **at > from_ms).count();
        assert!(later >= STORES / 12, "{plan}: only {later} hand-outs after the disturbance");
        let pauses = dispatched.windows(2).map(|w| (w[0], w[1])).filter(|(_, next)| *next > from_ms);
        let (mut longest_ms, mut after_kill_ms, mut after_leader_ms) = (0, 0, 0);
        for (before, next) in pauses {
            let led_since = self.watch.led_since(next).unwrap_or(next);
            longest_ms = longest_ms.max(next - before);
            after_kill_ms = after_kill_ms.max(next - before.max(from_ms));
            after_leader_ms = after_leader_ms.max(next - before.max(from_ms).max(led_since));
        }
        let row = format!(
            "{plan:<16} longest pause {longest_ms:>6} ms, after a leader was there {after_leader_ms:>5} ms, {later:>3} later"
        );
        eprintln!("{row}");
        self.table.push(row);
        assert!(after_leader_ms <= bound_ms, "{plan}: {}", self.table.join("\n"));
        assert!(after_kill_ms <= AFTER_KILL_MS, "{plan}: {}", self.table.join("\n"));
        self.cluster.whole().await;
    }

    /// Everybody's account of everything is the same.
    async fn nothing_lost_nothing_twice(&self) {
        for plan in &self.plans {
            self.hq.assert_true(plan).await;
            let record = self.hq.plan(plan).await;
            assert_eq!(record.counts.succeeded as usize, STORES, "{plan}");
        }
        let account = account_of(&[&self.east, &self.west]);
        account.assert_nothing_twice();
        let (counts, wanted) = (account.counts(), (self.plans.len() * STORES) as u64);
        assert_eq!((counts.tasks, counts.attempts, counts.handler_runs), (wanted, wanted, wanted), "{counts:?}");
        let all = self.hq.read(&["ff.>"]).await;
        let gap = all.iter().zip(1..).find(|(event, seq)| event.seq != *seq);
        assert!(gap.is_none(), "a gap before {gap:?}");
        // A tail that is lost tells of it each time: a handful a disturbance, not hundreds.
        let said = self.cluster.said();
        let lost = said.matches("tail.lost").count();
        assert!(lost <= 60 * self.plans.len(), "the tail was lost {lost} times");
        eprintln!("{}\ntail lost {lost} times", self.table.join("\n"));
    }

    async fn leader_killed(&mut self) {
        self.under_way("leader-killed", 6).await;
        let leader = self.cluster.leader().await;
        let at_ms = now_ms();
        self.cluster.kill(leader);
        self.cluster.leader().await;
        self.cluster.launch_again(leader).await;
        self.over("leader-killed", at_ms, AFTER_LEADER_MS).await;
    }

    async fn leader_deposed(&mut self) {
        self.under_way("leader-deposed", 6).await;
        let at_ms = now_ms();
        self.cluster.step_down("FANFOLD").await;
        self.over("leader-deposed", at_ms, AFTER_LEADER_MS).await;
    }

    async fn meta_leader_deposed(&mut self) {
        self.under_way("meta-deposed", 6).await;
        let at_ms = now_ms();
        self.cluster.step_meta_down().await;
        self.over("meta-deposed", at_ms, AFTER_LEADER_MS).await;
    }

    async fn follower_killed(&mut self) {
        self.under_way("follower-killed", 6).await;
        let mut leader = self.cluster.leader().await;
        let mut busiest = self.busiest(leader).await;
        if busiest.1 == 0 {
            // Everybody is on the leader: then it shall be a follower.
            self.cluster.step_down("FANFOLD").await;
            until("another leads", ELECTED, async || (self.cluster.leader().await != leader).then_some(())).await;
            leader = self.cluster.leader().await;
            busiest = self.busiest(leader).await;
        }
        assert!(busiest.1 > 0, "clients on it");
        let at_ms = now_ms();
        self.cluster.kill(busiest.0);
        self.over_without(busiest.0, "follower-killed", at_ms).await;
    }

    /// The follower with the most clients, and how many it has.
    async fn busiest(&self, leader: usize) -> (usize, u64) {
        let mut busiest = (0, 0);
        for follower in (0..3).filter(|i| *i != leader) {
            let clients = self.cluster.clients(follower).await;
            if clients >= busiest.1 {
                busiest = (follower, clients);
            }
        }
        busiest
    }

    /// The plan ends while one is away, which then comes back.
    async fn over_without(&mut self, member: usize, plan: &str, at_ms: i64) {
        self.hq.summary(plan, SummaryKind::Final, ELECTED * 2).await;
        self.cluster.launch_again(member).await;
        self.over(plan, at_ms, AFTER_LEADER_MS + RECONNECT_MS).await;
    }

    async fn quorum_lost(&mut self) {
        self.under_way("quorum-lost", 6).await;
        let leader = self.cluster.leader().await;
        let at_ms = now_ms();
        // The leader stays, with writes it can't get replicated.
        let others: Vec<usize> = (0..3).filter(|i| *i != leader).collect();
        for member in &others {
            self.cluster.kill(*member);
        }
        let before = self.done();
        until("what was handed out is done meanwhile", SOON, async || (self.done() > before).then_some(())).await;
        // The length of the outage: every writer meets its time-outs, and nobody may spin meanwhile.
        let cpu_ms = self.cluster.services_cpu_ms();
        tokio::time::sleep(OUTAGE).await;
        if let (Some(before), Some(after)) = (cpu_ms, self.cluster.services_cpu_ms()) {
            assert!(after - before < OUTAGE.as_millis() as u64 / 2, "the services used {} ms of an outage", after - before);
            self.table.push(format!("{:<16} processor time of the services in {OUTAGE:?}: {} ms", "quorum-lost", after - before));
        }
        for member in others {
            self.cluster.launch_again(member).await;
        }
        self.over("quorum-lost", at_ms, AFTER_LEADER_MS).await;
    }

    async fn rolling_restart(&mut self) {
        self.under_way("rolling", 3).await;
        let at_ms = now_ms();
        let leader = self.cluster.leader().await;
        for member in [(leader + 1) % 3, (leader + 2) % 3, leader] {
            self.cluster.end(member).await;
            self.cluster.launch_again(member).await;
            self.cluster.whole().await;
        }
        self.over("rolling", at_ms, AFTER_LEADER_MS + RECONNECT_MS).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_to_the_servers_nothing_is_lost_and_nothing_runs_twice() {
    let _alone = ALONE.lock().await;
    let mut run = Run::start().await;
    run.leader_killed().await;
    run.leader_deposed().await;
    run.meta_leader_deposed().await;
    run.follower_killed().await;
    run.quorum_lost().await;
    run.rolling_restart().await;
    run.nothing_lost_nothing_twice().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_files_are_a_cluster_as_they_are() {
    let _alone = ALONE.lock().await;
    let mut cluster = Cluster::start(BIN, false).await;
    cluster.serve("all", &["api", "recorder", "dispatcher", "projector", "convergence"]).await;
    let hq = cluster.hq().await;
    let fleet = cluster.fleet("east", &ids(1, 10)).start().await;
    hq.online(10).await;
    hq.submit(&noop("documented", &ids(1, 10))).await;
    let last = hq.summary("documented", SummaryKind::Final, ELECTED).await;
    assert_eq!(last.counts.succeeded, 10);
    hq.assert_true("documented").await;
    fleet.account().assert_nothing_twice();
    cluster.whole().await;
    let said = cluster.cli().run(&["doctor", "--json"]).await.exits(0).json();
    assert!(said["checks"].as_array().is_some_and(|c| c.iter().all(|c| c["health"] == "ok")), "{said:#}");
    let refused = cluster.cli().run(&["serve", "--json"]).await.exits(4);
    assert_eq!(refused.error_code(), "ASSET_MISMATCH");
    assert!(refused.stdout.contains("num_replicas"), "{refused:?}");
}

/// `fanfold up` in a folder; its own state file tells other commands where it is.
fn up(folder: &Path, name: &str, replicas: &str) -> Proc {
    let (data, run) = (folder.join("data").display().to_string(), folder.display().to_string());
    let config = folder.join("services.toml");
    std::fs::write(&config, format!("[dispatcher]\nbeatMs = {BEAT_MS}\n")).unwrap();
    let args = ["up", "--data", &data, "--config", &config.display().to_string(), "--replicas", replicas, "--json"];
    Proc::start(name, BIN, &args, folder, &[("XDG_RUNTIME_DIR", &run)])
}

fn lives(pid: u64) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn up_with_three_servers_survives_any_of_them_and_ends_all() {
    let _alone = ALONE.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let mut first = up(folder.path(), "up", "3");
    let said: Value = serde_json::from_str(&first.hear("{").await).unwrap();
    let (urls, pids) = (said["urls"].as_array().unwrap(), said["serverPids"].as_array().unwrap());
    assert_eq!((urls.len(), pids.len(), said["replicas"].as_u64()), (3, 3, Some(3)), "{said}");
    let state = std::fs::read_to_string(folder.path().join("fanfold/up.json")).unwrap();
    assert!(urls.iter().all(|url| state.contains(url.as_str().unwrap())), "{state}");

    let url = said["url"].as_str().unwrap();
    let hq = Hq::connect(url).await;
    let fleet = Fleet::new(BIN, folder.path(), url, "east", &ids(1, 60)).work_ms(50, 300).start().await;
    hq.online(60).await;
    hq.submit(&with(noop("up", &ids(1, 60)), json!({ "limits": { "inFlight": 3 } }))).await;
    until("it is under way", SOON, async || (fleet.account().seen(Moment::Done) >= 5).then_some(())).await;
    let killed = i32::try_from(pids[0].as_u64().unwrap()).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(killed).unwrap(), Signal::KILL).unwrap();
    let last = hq.summary("up", SummaryKind::Final, ELECTED).await;
    assert_eq!(last.counts.succeeded, 60);
    hq.assert_true("up").await;
    fleet.account().assert_nothing_twice();
    let address = urls[0].as_str().unwrap().trim_start_matches("nats://").to_owned();
    until("the killed one is back on its port", ELECTED, async || tokio::net::TcpStream::connect(&address).await.ok()).await;
    drop(fleet);

    // The log's folder is told by what it holds; another number is refused and nothing is touched.
    let mut other = up(folder.path(), "other", "1");
    assert_eq!(other.exited(ELECTED).await.code(), Some(4));
    assert!(other.lines().concat().contains("REPLICAS_DIFFER"), "{:?}", other.lines());
    let log = hq.ledger.last_seq().await.unwrap();
    drop(hq);
    first.signal(Signal::INT);
    assert_eq!(first.exited(ELECTED).await.code(), Some(0), "{}", first.stderr());
    assert!(!pids.iter().any(|pid| lives(pid.as_u64().unwrap())), "{pids:?}");

    let mut again = up(folder.path(), "again", "3");
    let said: Value = serde_json::from_str(&again.hear("{").await).unwrap();
    let hq = Hq::connect(said["url"].as_str().unwrap()).await;
    assert!(hq.ledger.last_seq().await.unwrap() >= log, "the same log");
    hq.assert_true("up").await;
    again.signal(Signal::TERM);
    assert_eq!(again.exited(ELECTED).await.code(), Some(0), "{}", again.stderr());
}
