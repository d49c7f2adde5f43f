//! A session whose tasks descend from srun, so that checkpoints of the job contain them: the process that serves the step
//! is a child of srun, and before a checkpoint srun parts from the controller for a while.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use squall_client::random;
use squall_host::stepd::APART;
use squall_model::codec;
use squall_model::id::StepNo;
use squall_model::step::{Birth, Inside, ToStep};
use squall_model::wire::client::Request;

use super::Session;

/// The process that serves the step as a child of srun.
#[derive(Debug)]
pub(super) struct Inner {
    /// Name of the abstract socket on which it listens for the node's step daemon.
    name: String,
    /// The process. It ends by itself when srun has, and is not waited for.
    _process: Child,
}

impl Session<'_> {
    /// Returns whether the step's tasks descend from srun, if the node agrees.
    pub(super) fn is_inside(&self) -> bool {
        matches!(&self.request, Request::CreateStep { spec, .. } if spec.inside.is_some())
    }

    /// Starts the process that serves the step, unless it runs already, and tells the node's step daemon its name.
    pub(super) fn bear(&mut self, at: usize, birth: &Birth) {
        if !self.is_inside() {
            return;
        }
        if self.inner.is_none() {
            match Inner::start(birth) {
                Ok(inner) => self.inner = Some(inner),
                Err(e) => eprintln!("srun: error: the step's tasks can't be started: {e}"),
            }
        }
        let name = self.inner.as_ref().map(|inner| inner.name.clone()).unwrap_or_default();
        if let Some(link) = self.links.get_mut(at) {
            link.dismiss(&ToStep::Inside(name));
        }
    }

    /// Has later requests say that the step runs already, and as which one.
    pub(super) fn resume_as(&mut self, step: StepNo) {
        if let Request::CreateStep { spec, .. } = &mut self.request
            && let Some(inside) = &mut spec.inside
        {
            *inside = Inside { resumes: Some(step) };
            spec.immediate = false;
        }
    }

    /// Closes the connection to the controller for a while: a checkpoint of the job is about to be made.
    pub(super) fn part(&mut self, now: Instant) {
        (self.client, self.search) = (None, None);
        self.rejoin_at = Some(now + APART);
    }

    /// Connects to the controller again, when it is time to.
    pub(super) fn rejoin(&mut self, now: Instant) {
        if self.rejoin_at.is_some_and(|at| now >= at) {
            self.rejoin_at = None;
            self.look_for_controller();
        }
    }
}

impl Inner {
    fn start(birth: &Birth) -> io::Result<Self> {
        let name = format!("squall-step-{:032x}", u128::from_le_bytes(random()));
        let mut bytes = format!("{name}\n").into_bytes();
        codec::encode(birth, &mut bytes).map_err(io::Error::other)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("squall").args(["step", "--inside"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut process = command.spawn()?;
        if let Some(mut stdin) = process.stdin.take() {
            stdin.write_all(&bytes)?;
        }
        Ok(Self { name, _process: process })
    }
}
