//! Seeded histories: terminals and HQ go through what chance has in store, then everything is healed, and the plan must come to its end
//! with an account that is true. `FANFOLD_SIM_SEED=n` replays one, `FANFOLD_SIM_SEEDS=n` sets how many.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use fanfold_wire::api::Noted;
use serde_json::json;

use fanfold_tests::world::handle::Fault;
use fanfold_tests::world::terminal::{Act, Options};
use fanfold_tests::world::{ROLES, Role, World};

const STORES: usize = 20;
/// How long chance reigns, in ms.
const CHAOS_MS: i64 = 30_000;
const EXPIRES_MS: i64 = 120_000;

/// SplitMix64.
#[derive(Clone)]
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn percent(&mut self, n: u64) -> bool {
        self.below(100) < n
    }
}

/// What a terminal does with an attempt: from the seed, its number and the attempt's alone.
fn act(seed: u64, store: u64, attempt: u32) -> Act {
    let mut chance = Chance(seed ^ store << 32 ^ u64::from(attempt) << 48);
    let ms = chance.below(4_000);
    if attempt > 6 {
        return Act::Succeed(ms / 4);
    }
    match chance.below(100) {
        0..55 => Act::Succeed(ms),
        55..65 => Act::SucceedQuietly(ms / 4),
        65..76 => Act::Fail(ms, "NET"),
        76..78 => Act::Fail(ms, "BIZ_NO"),
        78..83 => Act::Garbage(ms),
        83..88 => Act::Reject("BUSY"),
        88..92 => Act::Hang,
        92..94 => Act::HangQuietly,
        _ => Act::Miss,
    }
}

fn options(seed: u64, store: u64) -> Options {
    let mut options = Options::new(move |_, attempt| act(seed, store, attempt));
    options.sync_ms = 3_000 + 317 * store;
    options.network = Arc::new(move |n| {
        let mut chance = Chance(seed ^ store << 40 ^ n << 20);
        let delay_ms = if chance.percent(5) { 2_000 + chance.below(3_000) } else { chance.below(300) };
        (delay_ms, chance.percent(20))
    });
    options
}

async fn misfortune(w: &mut World, chance: &mut Chance, stores: &[String]) {
    let store = &stores[chance.below(STORES as u64) as usize];
    let role = ROLES[chance.below(5) as usize];
    match chance.below(20) {
        0..3 => w.terminals.get_mut(store).unwrap().kill(),
        3..9 => w.terminals.get_mut(store).unwrap().start(),
        9 => {
            let terminal = w.terminals.get_mut(store).unwrap();
            terminal.kill();
            terminal.lose_journal();
            terminal.start();
        }
        10 => {
            let terminal = w.terminals.get_mut(store).unwrap();
            if terminal.is_on() {
                terminal.goodbye().await;
                terminal.start();
            }
        }
        11..13 => {
            w.hq.stop(role);
            w.sleep(chance.below(3_000)).await;
            w.hq.start(role);
        }
        13..17 => {
            let fault = [Fault::Away, Fault::AckLost, Fault::AckLost, Fault::Full][chance.below(4) as usize];
            let role = [Role::Recorder, Role::Dispatcher, Role::Convergence][chance.below(3) as usize];
            w.hq.faults(role).next_appends([Some(fault)]);
        }
        17 => {
            w.hq.faults(role).freeze(true);
            w.sleep(chance.below(4_000)).await;
            w.hq.faults(role).freeze(false);
        }
        18 => w.ledger.reconnect(),
        _ => {
            w.ledger.set_down(true);
            w.sleep(chance.below(2_500)).await;
            w.ledger.set_down(false);
        }
    }
}

/// One history; gives the digest of its log.
async fn history(seed: u64) -> String {
    let mut chance = Chance(seed);
    let mut w = World::new().await;
    let stores: Vec<String> = (0..STORES).map(|n| format!("S{n:02}")).collect();
    for (n, store) in stores.iter().enumerate() {
        let terminal = w.terminal_with(store, options(seed, n as u64));
        if chance.percent(20) {
            terminal.kill();
        }
    }
    let names: Vec<&str> = stores.iter().map(String::as_str).collect();
    // Half of the histories have a second process that takes over whenever the first one is silent for too long.
    let mut second = w.process().await;
    if chance.percent(50) {
        [Role::Dispatcher, Role::Convergence, Role::Projector].iter().for_each(|role| second.start(*role));
    }
    let in_flight = 1 + chance.below(25);
    let more =
        json!({ "deadlineMs": 1_000 + chance.below(40_000), "expiresMs": EXPIRES_MS, "limits": { "inFlight": in_flight } });
    w.submit("p", &names, more).await;
    let asks_at = chance.percent(30).then(|| chance.below(CHAOS_MS as u64) as i64);
    let (begun, mut asked) = (w.clock.now_ms(), false);
    while w.clock.now_ms() - begun < CHAOS_MS {
        w.sleep(100 + chance.below(1_200)).await;
        misfortune(&mut w, &mut chance, &stores).await;
        if let Some(at) = asks_at
            && !asked
            && w.clock.now_ms() - begun > at
        {
            asked = true;
            let (endpoint, body) = match chance.below(3) {
                0 => ("plan.cancel", json!({ "planId": "p" })),
                1 => ("plan.close", json!({ "planId": "p" })),
                _ => ("task.requeue", json!({ "planId": "p", "selector": { "failed": {} } })),
            };
            // It may be refused: the plan may be over by now.
            let _ = w.ask::<Noted>(endpoint, body).await;
        }
    }
    for store in &stores {
        let terminal = w.terminals.get_mut(store).unwrap();
        if !terminal.is_on() {
            terminal.start();
        }
    }
    let view = w.until_over("p", EXPIRES_MS as u64 + 30_000).await;
    assert_eq!(view.counts().total(), STORES as u64);
    second.assert_alive();
    w.check().await;
    w.check_state().await;
    w.log_hash().await
}

fn run(seed: u64) -> String {
    let replay = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(history(seed))
    };
    catch_unwind(AssertUnwindSafe(replay)).unwrap_or_else(|why| {
        let why = why.downcast_ref::<String>().cloned().unwrap_or_default();
        resume_unwind(Box::new(format!("seed {seed} failed; replay it with FANFOLD_SIM_SEED={seed}\n{why}")))
    })
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn every_history_ends_with_a_true_account() {
    if let Some(seed) = setting("FANFOLD_SIM_SEED") {
        run(seed);
        return;
    }
    let failed: Vec<String> = (0..setting("FANFOLD_SIM_SEEDS").unwrap_or(200))
        .filter_map(|seed| catch_unwind(|| run(seed)).err())
        .map(|why| why.downcast_ref::<String>().cloned().unwrap_or_default())
        .collect();
    assert!(
        failed.is_empty(),
        "{} seeds failed, the first:\n{}\nall: {:?}",
        failed.len(),
        failed[0],
        failed.iter().map(|f| f.split(';').next()).collect::<Vec<_>>()
    );
}

#[test]
fn the_same_seed_makes_the_same_log() {
    for seed in 0..5 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
