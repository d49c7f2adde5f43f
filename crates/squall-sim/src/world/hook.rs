//! Programs around jobs on simulated nodes: they take a while, may fail or hang, and die with their node daemon.

use squall_engine::node::{HookRun, NodeInput};
use squall_model::job::JobAttempt;
use squall_model::time::Span;
use squall_model::wire::hook::Hook;

use crate::mutation::Mutation;
use crate::world::{Happening, World};

/// Longest time that a program takes if it does not hang.
const TAKES: Span = Span::from_secs(3);

impl World {
    /// Starts a program on a node.
    pub(crate) fn run_hook(&mut self, node: usize, run: &HookRun) {
        let (hook, job) = (run.hook, run.job());
        let (life, incarnation) = (self.nodes[node].life, self.nodes[node].incarnation);
        if let Some(job) = job {
            self.judge.program_runs((node, incarnation), job, hook);
        }
        self.nodes[node].hooks.insert((hook, job));
        let checks = hook == Hook::AfterFault;
        if checks {
            self.judge.check_begins(self.now, node);
        }
        let ppm = if checks { self.setup.check_fails } else { self.setup.hook_fails };
        let fails = ppm > 0 && self.seed.chance(ppm);
        let hangs = fails && !checks && self.seed.chance(300_000);
        let span = if hangs { Span::from_secs(86_400) } else { self.seed.span(Span(500), TAKES) };
        self.after(span, Happening::HookEnds { node, life, hook, job, fails });
        let early = match hook {
            Hook::Prolog => self.is_planted(Mutation::PrologUnawaited),
            Hook::Epilog => self.is_planted(Mutation::EpilogSkipped),
            Hook::AfterFault => self.is_planted(Mutation::CheckUnawaited),
            _ => false,
        };
        if early {
            self.tell_node(node, NodeInput::HookEnded { hook, job, error: None });
        }
    }

    /// Kills a program.
    pub(crate) fn kill_hook(&mut self, node: usize, hook: Hook, job: Option<JobAttempt>) {
        let life = self.nodes[node].life;
        self.after(Span::from_millis(10), Happening::HookEnds { node, life, hook, job, fails: true });
    }

    /// Ends a program, unless it died with its node daemon.
    pub(crate) fn hook_ends(&mut self, node: usize, life: u64, hook: Hook, job: Option<JobAttempt>, fails: bool) {
        if !self.nodes[node].lives(life) || !self.nodes[node].hooks.remove(&(hook, job)) {
            return;
        }
        if let Some(job) = job.filter(|_| hook == Hook::Epilog || !fails) {
            self.nodes[node].spool.passed.insert((job, hook));
            self.judge.program_ended((node, self.nodes[node].incarnation), job, hook);
        }
        if hook == Hook::AfterFault && !fails {
            self.judge.check_passed(node);
        }
        if hook == Hook::Reboot && !fails {
            return self.reboot_machine(node);
        }
        let error = fails.then(|| "it failed".to_owned());
        self.tell_node(node, NodeInput::HookEnded { hook, job, error });
    }

    /// Tells a daemon that starts which programs earlier ones saw end.
    pub(crate) fn find_hooks(&mut self, node: usize) {
        self.nodes[node].hooks.clear();
        if self.is_planted(Mutation::ProgramsForgotten) {
            return;
        }
        for (job, hook) in self.nodes[node].spool.passed.iter().copied().collect::<Vec<_>>() {
            self.tell_node(node, NodeInput::FoundHook { job, hook });
        }
    }
}
