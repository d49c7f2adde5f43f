//! Questions to the modelled etcd and its answers, which may be lost or late.

use squall_engine::replica::etcd::{Ask, Op, Problem, Reply, Txn};
use squall_engine::replica::{Input, Lane};
use squall_model::encoding;
use squall_model::replica::{Entry as Stored, Head};
use squall_model::time::Span;
use squall_store::entry::Entry;

use super::PREFIX;
use super::etcd::{Answer, Question};
use crate::coverage::Fault;
use crate::world::{Happening, World};

/// Time after which a controller takes a question for unanswered.
const TIMEOUT: Span = Span::from_millis(500);
/// Longest time of a question that takes unusually long.
const SLOW_MAX: Span = Span::from_millis(1500);

/// Longest time for which a poll without news is held up.
const HELD_MAX: Span = Span::from_millis(400);

impl World {
    /// Sends a question to etcd.
    pub(super) fn ask_etcd(&mut self, of: usize, lane: Lane, mut ask: Ask) {
        let life = self.controllers[of].life;
        let Some(etcd) = &mut self.etcd else { return };
        etcd.serial += 1;
        let serial = etcd.serial;
        if let Some(peer) = &mut self.controllers[of].peer {
            peer.open.insert(lane, serial);
        }
        if let Some(reply) = self.perturb_ask(of, lane, &mut ask) {
            let answer = Answer { of, life, lane, serial, reply: Ok(reply) };
            return self.after(Span(1), Happening::EtcdAnswers(Box::new(answer)));
        }
        let question = Box::new(Question { of, life, lane, serial, until: self.now + TIMEOUT, ask });
        let (there, back) = (self.etcd_delay(), self.etcd_delay());
        // What only reads may be done when it is sent, which saves an event: polls are most of the traffic.
        if !question.ask.changes() && !self.is_etcd_down() && self.reaches_etcd(of) {
            let reply = self.do_at_etcd(of, &question.ask);
            // Standbys poll all the time. That those polls take long which show no entry saves most of their events.
            let idle = matches!(&reply, Ok(Reply::Txn(done)) if done.results.last().is_some_and(Vec::is_empty));
            let held = if idle && lane == Lane::Log { self.seed.span(Span(0), HELD_MAX) } else { Span(0) };
            return self.answer(&question, reply, Span(there.0 + back.0 + held.0));
        }
        if there >= TIMEOUT {
            self.give_up(&question);
        }
        self.after(there, Happening::EtcdAsked(question));
    }

    fn etcd_delay(&mut self) -> Span {
        let slow = self.etcd.as_ref().map_or(1, |etcd| if self.now < etcd.slow.1 { etcd.slow.0 } else { 1 });
        if self.seed.chance(10_000) {
            self.seed.span(Span(0), SLOW_MAX)
        } else {
            Span(self.seed.between(100, 2000) * slow)
        }
    }

    /// Returns whether etcd has no quorum at present.
    fn is_etcd_down(&self) -> bool {
        self.etcd.as_ref().is_some_and(|etcd| self.now < etcd.down_until)
    }

    fn reaches_etcd(&self, of: usize) -> bool {
        self.network.open(self.network.controller(of), self.network.etcd())
    }

    fn give_up(&mut self, question: &Question) {
        let reply = Err(Problem::Unavailable("no answer in time".into()));
        let answer =
            Answer { of: question.of, life: question.life, lane: question.lane, serial: question.serial, reply };
        let at = question.until.max(self.now);
        self.agenda.at(at, Happening::EtcdAnswers(Box::new(answer)));
    }

    /// Sends an answer, which may be lost or late.
    fn answer(&mut self, question: &Question, reply: Result<Reply, Problem>, after: Span) {
        let of = question.of;
        let doubt = self.etcd.as_ref().map_or(0, |etcd| if self.now < etcd.doubt.1 { etcd.doubt.0 } else { 2_000 });
        let open = self.network.open(self.network.etcd(), self.network.controller(of));
        let late = self.now + after >= question.until;
        if !open || late || self.seed.chance(doubt) {
            if question.ask.changes() {
                self.strike(Fault::AnswerOfEtcdLost, of as u64);
            }
            return self.give_up(question);
        }
        let &Question { life, lane, serial, .. } = question;
        self.after(after, Happening::EtcdAnswers(Box::new(Answer { of, life, lane, serial, reply })));
    }

    /// Handles a question that arrives at etcd, or is lost on its way. etcd may do it much later.
    pub(crate) fn etcd_asked(&mut self, question: Box<Question>) {
        let given_up = self.now >= question.until;
        if self.is_etcd_down() {
            if !given_up {
                self.give_up(&question);
            }
            let until = self.etcd.as_ref().map_or(self.now, |etcd| etcd.down_until);
            if question.ask.changes() && self.seed.chance(250_000) {
                let delay = self.etcd_delay();
                self.agenda.at(question.until.max(until + delay), Happening::EtcdAsked(question));
            }
            return;
        }
        if !self.reaches_etcd(question.of) {
            if !given_up {
                self.give_up(&question);
            }
            return;
        }
        let reply = self.do_at_etcd(question.of, &question.ask);
        if given_up {
            return self.strike(Fault::EtcdLate, question.of as u64);
        }
        let back = self.etcd_delay();
        self.answer(&question, reply, back);
    }

    /// Handles an answer, or the end of the wait for it.
    pub(crate) fn etcd_answers(&mut self, answer: Answer) {
        let Answer { of, life, lane, serial, mut reply } = answer;
        let host = &mut self.controllers[of];
        let Some(peer) = host.peer.as_mut().filter(|_| host.life == life) else { return };
        if peer.open.get(&lane) != Some(&serial) {
            return;
        }
        peer.open.remove(&lane);
        self.perturb_reply(of, lane, &mut reply);
        self.tell_replica(of, Input::Reply { lane, reply });
    }

    /// Does what is asked. The judge sees what etcd then holds.
    fn do_at_etcd(&mut self, of: usize, ask: &Ask) -> Result<Reply, Problem> {
        let now = self.now;
        let Some(etcd) = &mut self.etcd else { return Err(Problem::Unavailable(String::new())) };
        if std::mem::take(&mut etcd.elects) {
            etcd.model.extend_leases(now);
        }
        let reply = etcd.model.ask(now, ask);
        if let (Ask::Txn(txn), Ok(Reply::Txn(done))) = (ask, &reply)
            && done.succeeded
        {
            self.observe(of, txn);
        }
        reply
    }

    /// Looks at what a transaction has written.
    fn observe(&mut self, of: usize, txn: &Txn) {
        for op in &txn.then {
            let Op::Put { key, value, .. } = op else { continue };
            let Some(name) = key.strip_prefix(PREFIX) else { continue };
            if let Some(first) = name.strip_prefix("/log/") {
                self.entry_stored(of, first, value);
            } else if name == "/head" {
                let last = encoding::from_slice::<Head>(value).map_or(0, |head| head.last);
                self.judge.log_ends(of, last);
            }
        }
    }

    /// Takes a batch as durable, which etcd now has.
    fn entry_stored(&mut self, of: usize, first: &str, value: &[u8]) {
        let now = self.now;
        let stored = encoding::from_slice::<Stored>(value).unwrap_or_default();
        let mut bytes = stored.bytes;
        if stored.pieces > 0 {
            self.strike(Fault::BatchInPieces, u64::from(stored.pieces));
        }
        if let Some(etcd) = self.etcd.as_mut().filter(|_| stored.pieces > 0) {
            let key = format!("{PREFIX}/piece/{first}/{:016x}/", stored.run);
            let get = Op::Get { end: Some(format!("{PREFIX}/piece/{first}/{:016x}0", stored.run)), key, limit: 0 };
            let read = etcd.model.ask(now, &Ask::Txn(Txn { then: vec![get], ..Txn::default() }));
            if let Ok(Reply::Txn(done)) = read {
                bytes = done.results.into_iter().flatten().flat_map(|piece| piece.value).collect();
            }
        }
        let first = first.parse().unwrap_or(0);
        self.judge.entry_stored(of, first, stored.last, &bytes);
        match Entry::decode(&bytes) {
            Ok(entry) => {
                for record in &entry.records {
                    self.tell_of(record);
                    self.judge.durable(now, record, &self.clients);
                }
            }
            Err(error) => self.judge.violate("an entry of the log can be read", format!("{first}: {error}")),
        }
    }
}
