//! Power saving in a simulated cluster: programs of the controller's machine switch nodes off and on, and some nodes
//! never come.

use squall_engine::control::{Input, PowerProgram};
use squall_model::config::{NodeConfig, NodeStart};
use squall_model::hostlist;
use squall_model::power::PowerPhase;
use squall_model::set::NodeSet;
use squall_model::time::Span;

use crate::mutation::Mutation;
use crate::seed::Seed;
use crate::setup::Setup;
use crate::world::{Happening, World};

/// Longest time that a program takes.
const TAKES: Span = Span::from_secs(3);

impl Setup {
    /// Adds power saving with times, rates and failures by chance.
    pub(crate) fn save_power(&mut self, chance: &mut Seed) {
        self.switch_nodes(chance.spread(20, 300));
        self.reboot_nodes();
        let power = &mut self.config.power;
        power.suspend_timeout_s = chance.between(4, 20);
        power.suspend_rate = [0, 6, 60][chance.below(3) as usize];
        power.resume_rate = [0, 30, 300][chance.below(3) as usize];
        self.config.health.resume_timeout_s = chance.between(15, 60);
        self.boot_fails = [0, 50_000, 200_000][chance.below(3) as usize];
        let most = self.names.len() as u64 / 4;
        self.add_clouds(chance.below(most + 1) as usize);
    }

    /// Has nodes boot in time from now on: a job that needs all of them would else never begin, where many are late.
    pub(crate) fn boot_well(&mut self) {
        self.boot_fails = 0;
        let soon = Span::from_secs(self.config.health.resume_timeout_s.saturating_sub(10).max(1));
        self.boots = self.boots.min(soon);
    }

    /// Has idle nodes switched off after so many seconds.
    pub(crate) fn switch_nodes(&mut self, after_s: u64) {
        let power = &mut self.config.power;
        "/suspend".clone_into(&mut power.suspend_program);
        "/resume".clone_into(&mut power.resume_program);
        "/failed".clone_into(&mut power.resume_fail_program);
        power.suspend_time_s = Some(after_s);
    }

    /// Lets nodes be rebooted.
    pub(crate) fn reboot_nodes(&mut self) {
        "/reboot".clone_into(&mut self.config.health.reboot_program);
    }

    /// Makes the last nodes those of a cloud.
    pub(crate) fn add_clouds(&mut self, count: usize) {
        let count = count.min(self.names.len().saturating_sub(1));
        if count == 0 {
            return;
        }
        let (fixed, clouds) = self.names.split_at(self.names.len() - count);
        self.config.nodes = vec![
            NodeConfig { name: hostlist::compress(fixed), ..NodeConfig::default() },
            NodeConfig {
                name: hostlist::compress(clouds),
                cpus: Some(self.cores),
                memory_mb: Some(self.memory_mb),
                state: NodeStart::Cloud,
                ..NodeConfig::default()
            },
        ];
    }
}

impl World {
    /// Starts a program of a controller's machine. It goes on if the controller dies.
    pub(crate) fn run_power(&mut self, of: usize, program: PowerProgram) {
        let PowerProgram { phase, nodes, argument, .. } = program;
        self.judge.power_program_runs(&nodes, phase);
        let names = hostlist::expand(&argument).unwrap_or_default();
        let found = names.iter().filter_map(|name| self.nodes.iter().position(|node| node.name == *name));
        let hosts: Vec<usize> = found.collect();
        if hosts.len() != nodes.len() {
            self.judge.violate("programs get the names of nodes", argument);
        }
        let span = self.chance.span(Span(300), TAKES);
        let life = self.controllers[of].life;
        self.after(span, Happening::PowerProgramEnds { of, life, phase, nodes: Box::new(nodes), hosts });
    }

    /// Ends a program: the nodes go, or come after a while. Only the controller that started it hears of that.
    pub(crate) fn power_program_ends(
        &mut self,
        (of, life): (usize, u64),
        phase: PowerPhase,
        nodes: NodeSet,
        hosts: &[usize],
    ) {
        for &host in hosts {
            match phase {
                PowerPhase::GoingDown if self.is_planted(Mutation::NeighbourSwitchedOff) => {
                    self.switch_off((host + 1) % self.nodes.len());
                }
                PowerPhase::GoingDown => self.switch_off(host),
                PowerPhase::GoingUp => self.switch_on(host),
                PowerPhase::On | PowerPhase::Off => {}
            }
        }
        if self.controllers[of].life == life {
            self.tell_controller(of, Input::PowerProgramEnded { phase, nodes });
        }
    }

    /// Reboots a node, by its own program.
    pub(crate) fn reboot_machine(&mut self, node: usize) {
        self.switch_off(node);
        self.switch_on(node);
    }

    fn switch_off(&mut self, node: usize) {
        if !self.nodes[node].powered {
            return;
        }
        let live = self.nodes[node].steps.iter().find(|(_, step)| step.has_live_tasks()).map(|(key, _)| *key);
        if let Some(key) = live.filter(|key| self.judge.is_started(key.job)) {
            let text = format!("step {key} on {}", self.nodes[node].name);
            self.judge.violate("no node is switched off under a job", text);
        }
        self.lose_power(node, None);
    }

    fn switch_on(&mut self, node: usize) {
        if self.chance.chance(self.setup.boot_fails) {
            return;
        }
        let span = self.chance.span(Span::from_secs(1), self.setup.boots);
        if !self.nodes[node].powered {
            self.restore_power(node, span);
        } else if !self.nodes[node].has_daemon() {
            self.start_node(node, span);
        }
    }
}
