//! The end: the handlers' own account against the log, the summaries, the records, the API and a replay. Everything that is wrong is
//! gathered and told at once.

mod executions;
mod plans;

use fanfold_wire::terminal::ReportStatus;
use futures::StreamExt;

use super::Run;
use super::watch::Watch;
use crate::fleet::Fleet;
use crate::wait::{SOON, until};

/// Wrong things told one by one.
const WRONG_SHOWN: usize = 40;
/// Plans looked at at once.
const AT_ONCE: usize = 4;

/// What was found.
#[derive(Debug, Default)]
pub struct Findings {
    /// Everything that is not as it should be.
    pub wrong: Vec<String>,
    /// What was compared, for people.
    pub compared: Vec<String>,
}

impl Findings {
    fn check(&mut self, so: bool, otherwise: impl FnOnce() -> String) {
        if !so {
            self.wrong.push(otherwise());
        }
    }
}

impl Run {
    /// Compares everything with everything.
    ///
    /// # Panics
    /// When anything does not agree.
    pub async fn judge(&mut self) {
        self.ground.hq.online(self.settings.stores).await;
        let cli = self.ground.cli();
        // A projector that has just put the bucket right may still be catching up.
        until("doctor finds nothing bad (what it found is on stderr)", SOON * 2, async || {
            let said = cli.run(&["doctor"]).await;
            if said.code != Some(0) {
                eprintln!("{}{}", said.stdout, said.stderr);
            }
            (said.code == Some(0)).then_some(())
        })
        .await;
        let mut found = Findings::default();
        self.judge_processes(&mut found);
        let accounts: Vec<plans::PlanAccount> = {
            let (ground, watch) = (&self.ground, &self.watch);
            let looks = watch.plans.values().map(|view| plans::judge(ground, view));
            futures::stream::iter(looks).buffered(AT_ONCE).collect().await
        };
        for account in &accounts {
            found.wrong.extend(account.wrong.iter().cloned());
        }
        let rows: usize = accounts.iter().map(|a| a.results.len()).sum();
        found.compared.push(format!("{} plans, {rows} rows with a result: summary, API, records and replay", accounts.len()));
        self.judge_answers(&mut found);
        self.ground.terminals().for_each(Fleet::kill);
        let runs = executions::of(&self.ground);
        executions::judge(&runs, &self.watch, &self.tap.answered(), &mut found);
        executions::judge_results(&runs, &accounts, &mut found);
        let shown: Vec<&String> = found.wrong.iter().take(WRONG_SHOWN).collect();
        assert!(found.wrong.is_empty(), "{} things are wrong, at first:\n{shown:#?}", found.wrong.len());
        eprintln!("{}\n{}", self.report(), found.compared.join("\n"));
    }

    fn judge_processes(&self, found: &mut Findings) {
        found.check(self.ground.deaths.is_empty(), || format!("ended by themselves: {:?}", self.ground.deaths));
        found.check(self.watch.holes.is_empty(), || format!("holes in the log: {:?}", self.watch.holes));
        found.check(self.watch.unreadable.is_empty(), || format!("unreadable events: {:?}", self.watch.unreadable));
        let counted = self.rows.iter().filter(|r| r.live.counts()).count();
        found.check(counted >= self.settings.disturbances, || format!("only {counted} disturbances met live work"));
        for (id, _) in self.work.plans() {
            found.check(self.watch.plans.keys().any(|k| k.as_str() == id), || format!("{id} was taken and is not in the log"));
        }
    }

    /// What a terminal was told is in the log is there, at that place.
    fn judge_answers(&self, found: &mut Findings) {
        let answered = self.tap.answered();
        let mut settled = 0;
        for answer in &answered {
            if matches!(answer.status, ReportStatus::Recorded | ReportStatus::Duplicate) {
                settled += 1;
                let at = self.watch.ids.get(&answer.id).copied();
                found.check(at.is_some() && answer.seq.is_none_or(|seq| Some(seq) == at), || {
                    format!("{} was answered {:?} at {:?}, the log has it at {at:?}", answer.id, answer.status, answer.seq)
                });
            }
        }
        let of = |status| answered.iter().filter(|a| a.status == status).count();
        found.compared.push(format!(
            "{settled} answered reports are in the log where they were said to be ({} answered as duplicates; {} refused, {} to be sent again)",
            of(ReportStatus::Duplicate),
            of(ReportStatus::Refused),
            of(ReportStatus::Retry),
        ));
        found.check(settled > 0, || "no answer was heard".to_owned());
    }
}

/// Whether the log has an event of this id.
fn in_log(watch: &Watch, id: &str) -> bool {
    watch.ids.contains_key(id)
}
