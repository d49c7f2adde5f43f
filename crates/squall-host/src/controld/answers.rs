//! Requests that the daemon answers itself, each here. The table of requests says who may make them and from where.

use std::sync::{Arc, Mutex};

use squall_engine::control::{CallerId, Who};
use squall_model::id::JobId;
use squall_model::job::Owner;
use squall_model::wire::client::{AccountingQuery, Answer, HostRequest, Refusal};
use tracing::info;

use super::follow;
use super::key_replication;
use super::past_output::PastOutput;
use super::screen::AccountingClient;
use super::turn::Daemon;
use crate::backup::Scope;
use crate::tail;

impl Daemon {
    /// Answers a request of the daemon, at once or after the flush of the open batch.
    pub(super) fn answer_host(&mut self, id: u64, who: Who, request: HostRequest) {
        if let Err(refusal) = self.pipeline.machine().authorize(&who, request.row().right) {
            return self.refuse(id, refusal);
        }
        match request {
            HostRequest::Accounting(query) => self.after_flush(move |daemon| daemon.rows(id, &who, Some(query))),
            HostRequest::History => self.after_flush(move |daemon| daemon.rows(id, &who, None)),
            HostRequest::Script { job } => self.after_flush(move |daemon| {
                let digest = daemon.pipeline.machine().script_of(job);
                let answer = digest.map_or_else(Answer::Refused, |digest| daemon.files.script(&digest));
                daemon.answer(id, answer);
            }),
            HostRequest::Tail { job, past: true, errors } => {
                self.after_flush(move |daemon| daemon.past_output(id, &who, (job, errors)));
            }
            HostRequest::Tail { job, past: false, errors } => self.after_flush(move |daemon| {
                let Some(out) = daemon.peers.get(&id).map(|peer| peer.out.clone()) else { return };
                let found = tail::output_of(daemon.pipeline.machine().state(), job, errors);
                let answer = move |tail| out.push_or_close(&Answer::Tail(Box::new(tail)));
                if let Err(refusal) = found.and_then(|(owner, path)| daemon.tails.read(&owner, path, answer)) {
                    daemon.answer(id, Answer::Refused(refusal));
                }
            }),
            HostRequest::Token { user, lifespan_s, link } => {
                let user = user.as_ref().unwrap_or(&who.owner.user);
                let token = self.files.bearers.issue(user, lifespan_s, link, self.now.secs());
                self.reply(id, token.map(Answer::Token).map_err(|e| no_token(user, &e)));
            }
            HostRequest::RevokeTokens { user } => self.revoke(id, &who.owner, user),
            HostRequest::StepDown { to } => match follow::successor(self.leadership.as_ref(), to.as_deref()) {
                Ok(successor) => self.resigns = Some((CallerId(id), Some(successor))),
                Err(refusal) => self.refuse(id, refusal),
            },
            HostRequest::Backup => self.after_flush(move |daemon| daemon.copy(id, Scope::All)),
            HostRequest::CopyLog => self.after_flush(move |daemon| daemon.copy(id, Scope::Log)),
            // The connection's task answers it, also at a standby and while nothing can be decided.
            HostRequest::Controllers => {}
        }
    }

    /// Does something after the flush of the open batch, which what was acknowledged before then precedes.
    fn after_flush(&mut self, deed: impl FnOnce(&mut Self) + 'static) {
        self.pipeline.later(Box::new(deed));
    }

    /// Answers with the open batch.
    fn reply(&mut self, id: u64, answer: Result<Answer, Refusal>) {
        if let Some(out) = self.pipeline.open_out() {
            out.answers.push((CallerId(id), answer.unwrap_or_else(Answer::Refused)));
        }
    }

    /// Queries accounting. `query`: which jobs; None: its history apart from jobs.
    fn rows(&mut self, id: u64, who: &Who, query: Option<Box<AccountingQuery>>) {
        let sight = self.pipeline.machine().sight(who);
        if query.is_none() && !sight.history() {
            self.answer(id, Answer::Refused(Refusal::AccessDenied));
        } else if let Some(peer) = self.peers.get(&id) {
            let reply = Box::new(AccountingClient { out: peer.out.clone(), sight });
            self.accounts.ask(query, self.clock.ahead_us(), reply);
        }
    }

    /// Answers with the end of the output of a past job of the caller's.
    fn past_output(&mut self, id: u64, who: &Who, (job, errors): (JobId, bool)) {
        let Some(peer) = self.peers.get(&id) else { return };
        let (out, asker, tails) = (peer.out.clone(), Arc::clone(&who.owner), self.tails.clone());
        let reply = Box::new(PastOutput { out, asker, job, errors, tails, found: Mutex::default() });
        self.accounts.ask(Some(Box::new(reply.query())), self.clock.ahead_us(), reply);
    }

    fn copy(&mut self, id: u64, scope: Scope) {
        let Some(peer) = self.peers.get(&id) else { return };
        let cluster = self.pipeline.machine().state().config.cluster.clone();
        self.backups.start((cluster, scope), self.accounts.copying(), &peer.out);
    }

    /// Revokes tokens. That is acknowledged when the other controllers know it, if there are any.
    fn revoke(&mut self, id: u64, by: &Owner, user: Option<String>) {
        let user = user.unwrap_or_else(|| by.user.clone());
        info!(user, by = by.user, "tokens revoked");
        let revoked = self.files.bearers.revoke(&user, self.now.secs()).map_err(|e| no_token(&user, &e));
        match (&self.leadership, self.peers.get(&id), revoked) {
            (Some(leadership), Some(peer), Ok(())) => {
                key_replication::acknowledge(leadership.asker(), by.user.clone(), peer.out.clone());
            }
            (_, _, revoked) => self.reply(id, revoked.map(|()| Answer::Done)),
        }
    }
}

fn no_token(user: &str, e: &std::io::Error) -> Refusal {
    Refusal::InvalidValue {
        option: "username".to_owned(),
        value: user.to_owned(),
        problem: format!("its tokens can't be made or revoked: {e}"),
    }
}
