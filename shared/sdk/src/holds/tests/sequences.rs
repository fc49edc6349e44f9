//! Long sequences of inputs: what must hold whatever their order.

use super::*;

#[test]
fn every_interleaving_runs_an_attempt_once_and_a_task_one_at_a_time() {
    // Inputs in a fixed pseudo-random order over few tasks, so that every pair of them meets in many states.
    let mut state = 7_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut b = Bench::new(2);
    let mut ran = std::collections::BTreeSet::new();
    let mut running: Vec<(String, u32)> = Vec::new();
    for step in 0..20_000_u32 {
        let name = format!("p{}", random(4));
        let attempt = step / 400 + random(3) as u32 + 1;
        let actions = match random(5) {
            0 | 1 => b.live(&name, attempt),
            2 => b.ask_stop(&name, attempt),
            3 if !running.is_empty() => {
                let (name, attempt) = running.swap_remove(random(running.len() as u64) as usize);
                let end = [EndKind::Succeeded, EndKind::Failed, EndKind::Stopped][random(3) as usize];
                let mut all = b.ended(&name, attempt, end);
                all.push_str(", ");
                all + &b.answered(&name, attempt, end, ReportStatus::Recorded, Some(random(2) == 0), None)
            }
            _ => b.sync(|_| ()).0,
        };
        for started in actions.split(", ").filter_map(|a| a.strip_prefix("run ")) {
            let (name, attempt) = started.split_once('/').unwrap();
            assert!(ran.insert(started.to_owned()), "{started} ran twice");
            assert!(running.iter().all(|(other, _)| other != name), "{started} ran beside another");
            running.push((name.to_owned(), attempt.parse().unwrap()));
        }
        assert!(running.len() <= 2 && running.len() == b.holds.running());
    }
    assert!(ran.len() > 100, "{}", ran.len());
}
