//! Tests of gatherings over many nodes, with nodes late, lost and slow, and of PMI dialogues.

use std::collections::{BTreeMap, VecDeque};

use squall_model::set::IndexSet;
use squall_model::step::{Distribution, Layout};
use squall_model::time::{Span, Time};
use squall_model::wire::peer::{Fault, Notice, PeerMessage, What};

use super::exchange::{Exchange, ExchangeAct, ExchangeInput};
use super::pmi::{Pmi, PmiAct};
use super::ring::Shape;
use crate::machine::Machine;

type Joined = Result<(Vec<u8>, u64), Fault>;

fn layout(nodes: u32, tasks: u32) -> Layout {
    Layout {
        nodes: (0..nodes).map(|n| format!("n{n}")).collect(),
        tasks: vec![tasks; nodes as usize].into(),
        distribution: Distribution::Block,
        cpus_per_task: 1,
        ports: None,
    }
}

/// Exchanges of all nodes, and the messages between them: in order between two nodes, in any order otherwise.
struct Net {
    nodes: Vec<Exchange>,
    dead: Vec<bool>,
    links: BTreeMap<(u32, u32), VecDeque<PeerMessage>>,
    joined: Vec<Vec<(u64, Joined)>>,
    answers: Vec<(u64, Result<Vec<u8>, Fault>)>,
    found: Vec<(u64, Result<Vec<Notice>, Fault>)>,
    sent: Vec<(usize, usize)>,
    now: Time,
    seed: u64,
}

impl Net {
    fn new(nodes: u32, tasks: u32) -> Self {
        Self::shaped(nodes, tasks, Shape::Mixed)
    }

    fn shaped(nodes: u32, tasks: u32, shape: Shape) -> Self {
        let layout = layout(nodes, tasks);
        let exchange = |n| Exchange::new(n, layout.clone(), Span::from_secs(10), shape);
        Self {
            nodes: (0..nodes).map(exchange).collect(),
            dead: vec![false; nodes as usize],
            links: BTreeMap::new(),
            joined: vec![Vec::new(); nodes as usize],
            answers: Vec::new(),
            found: Vec::new(),
            sent: vec![(0, 0); nodes as usize],
            now: Time::from_secs(1000),
            seed: 7,
        }
    }

    fn tell(&mut self, node: u32, input: ExchangeInput) {
        let mut acts = Vec::new();
        self.nodes[node as usize].step(self.now, input, &mut acts);
        for act in acts {
            match act {
                ExchangeAct::Send { place, .. } if self.dead[place as usize] => {
                    self.tell(node, ExchangeInput::Lost { place });
                }
                ExchangeAct::Send { place, message } => {
                    let bytes = match &message {
                        PeerMessage::Up { data, .. } | PeerMessage::Down { data, .. } => data.len(),
                        _ => 0,
                    };
                    self.sent[node as usize].0 += 1;
                    self.sent[node as usize].1 += bytes;
                    self.links.entry((node, place)).or_default().push_back(message);
                }
                ExchangeAct::Joined { ticket, result } => self.joined[node as usize].push((ticket, result)),
                ExchangeAct::Answer { ticket, result } => self.answers.push((ticket, result)),
                ExchangeAct::Found { ticket, result } => self.found.push((ticket, result)),
                ExchangeAct::Serve { place, ticket, rank } => {
                    let result = Ok(format!("card{rank}").into_bytes());
                    self.tell(node, ExchangeInput::Served { place, ticket, result });
                }
            }
        }
    }

    fn join(&mut self, node: u32, ranks: &IndexSet, data: &[u8]) {
        let (ranks, data) = (ranks.clone(), data.to_vec());
        self.tell(node, ExchangeInput::Join { ticket: u64::from(node), what: What::Fence, ranks, data });
    }

    fn random(&mut self) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed
    }

    /// Delivers all messages under way, in random order.
    fn run(&mut self) {
        loop {
            let busy: Vec<(u32, u32)> = self.links.iter().filter(|(_, q)| !q.is_empty()).map(|(k, _)| *k).collect();
            if busy.is_empty() {
                return;
            }
            let (from, to) = busy[(self.random() % busy.len() as u64) as usize];
            let message = self.links.get_mut(&(from, to)).and_then(VecDeque::pop_front).unwrap();
            if !self.dead[to as usize] {
                self.tell(to, ExchangeInput::Peer { place: from, message });
            }
        }
    }

    fn kill(&mut self, node: u32) {
        self.dead[node as usize] = true;
        for other in (0..self.nodes.len() as u32).filter(|&other| other != node) {
            self.tell(other, ExchangeInput::Lost { place: node });
        }
    }
}

#[test]
fn a_fence_is_a_fence_and_all_get_what_all_brought() {
    for nodes in [1, 2, 3, 8, 17, 18, 100, 300] {
        let mut net = Net::new(nodes, 2);
        let all = IndexSet::range(0, nodes * 2 - 1);
        let late = net.random() as u32 % nodes;
        for node in (0..nodes).filter(|&n| n != late) {
            net.join(node, &all, format!("<{node}>").as_bytes());
        }
        net.run();
        assert!(net.joined.iter().all(Vec::is_empty), "nobody leaves before the last has come");
        net.join(late, &all, format!("<{late}>").as_bytes());
        net.run();
        let first = net.joined[0].clone();
        for node in 0..nodes as usize {
            let [(ticket, Ok((data, context)))] = &net.joined[node][..] else { panic!("{:?}", net.joined[node]) };
            assert_eq!((*ticket, *context), (node as u64, 1));
            assert_eq!(Some(data), first[0].1.as_ref().ok().map(|(data, _)| data));
            let text = String::from_utf8(data.clone()).unwrap();
            assert!((0..nodes).all(|n| text.matches(&format!("<{n}>")).count() == 1), "{text}");
        }
        let most = net.sent.iter().map(|(messages, _)| *messages).max().unwrap();
        assert!(most <= 17, "{most} messages of one node");
    }
}

#[test]
fn fences_of_subsets_overlap_and_follow_each_other() {
    let mut net = Net::new(6, 1);
    let (low, high): (IndexSet, IndexSet) = (IndexSet::range(0, 3), IndexSet::range(2, 5));
    for round in 0..3_u8 {
        for node in 2..6 {
            net.join(node, &high, &[b'h', round]);
        }
        for node in 0..4 {
            net.join(node, &low, &[b'l', round]);
        }
    }
    net.run();
    for (node, joined) in net.joined.iter().enumerate() {
        assert_eq!(joined.len(), if (2..4).contains(&node) { 6 } else { 3 });
        let bytes = joined.iter().flat_map(|(_, result)| result.as_ref().unwrap().0.clone());
        let rounds: Vec<u8> = bytes.collect();
        assert!(rounds.len() == joined.len() * 8);
    }
}

#[test]
fn the_death_of_one_ends_it_for_all_before_and_after() {
    for dead in [0, 1, 20, 39] {
        let mut net = Net::new(40, 1);
        let all = IndexSet::range(0, 39);
        for node in (0..40).filter(|&n| n != dead && n != 30) {
            net.join(node, &all, b"x");
        }
        net.run();
        net.kill(dead);
        net.run();
        net.join(30, &all, b"x");
        net.run();
        for node in (0..40).filter(|&n| n != dead) {
            assert_eq!(net.joined[node as usize], [(u64::from(node), Err(Fault::Gone))], "node {node}, {dead} dead");
        }
        net.join(3, &all, b"x");
        assert_eq!(net.joined[3].last(), Some(&(3, Err(Fault::Gone))));
    }
}

#[test]
fn patience_ends_at_one_and_so_at_all() {
    let mut net = Net::new(20, 1);
    let all = IndexSet::range(0, 19);
    for node in 0..19 {
        net.join(node, &all, b"");
    }
    net.run();
    net.now = net.nodes[4].deadline().unwrap();
    net.tell(4, ExchangeInput::Tick);
    net.run();
    for node in 0..19 {
        assert_eq!(net.joined[node], [(node as u64, Err(Fault::Timeout))]);
    }
    net.join(19, &all, b"");
    assert_eq!(net.joined[19], [(19, Err(Fault::Timeout))], "who comes too late hears it");
    for node in 0..20 {
        net.join(node, &all, b"");
    }
    net.run();
    assert!(net.joined.iter().all(|joined| matches!(joined[1], (_, Ok(_)))), "the next one is another");
}

#[test]
fn direct_questions_are_answered_or_refused() {
    let mut net = Net::new(3, 2);
    let ask = |ticket, rank| ExchangeInput::Ask { ticket, rank };
    net.tell(0, ask(1, 5));
    net.tell(0, ask(2, 1));
    net.tell(0, ask(3, 99));
    net.run();
    net.tell(0, ask(4, 2));
    net.kill(1);
    net.tell(0, ask(5, 3));
    assert_eq!(
        net.answers,
        [
            (2, Err(Fault::NotFound)),
            (3, Err(Fault::NotFound)),
            (1, Ok(b"card5".to_vec())),
            (4, Err(Fault::Gone)),
            (5, Err(Fault::Gone))
        ]
    );
}

#[test]
fn what_is_published_is_found_everywhere_waited_for_and_taken_back_by_its_owner() {
    let mut net = Net::new(3, 2);
    let notice = |owner, key: &str| Notice { owner, key: key.into(), value: vec![owner as u8].into() };
    let post = |ticket, owner, key| PeerMessage::Post { ticket, notices: vec![notice(owner, key)] };
    let find = |ticket, key: &str, wait| PeerMessage::Find { ticket, keys: vec![key.into()], wait };
    let say = |net: &mut Net, node, ticket, message| {
        net.tell(node, ExchangeInput::Consult { ticket, message });
        net.run();
        std::mem::take(&mut net.found)
    };
    assert_eq!(say(&mut net, 2, 1, find(1, "port", true)), [], "waits");
    assert_eq!(say(&mut net, 0, 2, find(2, "port", false)), [(2, Ok(vec![]))]);
    let found = say(&mut net, 1, 3, post(3, 2, "port"));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.contains(&(3, Ok(vec![]))) && found.contains(&(1, Ok(vec![notice(2, "port")]))));
    assert_eq!(say(&mut net, 0, 4, post(4, 0, "port")), [(4, Err(Fault::Taken))]);
    let withdraw = |ticket, owner| PeerMessage::Withdraw { ticket, owner, keys: vec![] };
    say(&mut net, 0, 5, withdraw(5, 0));
    assert_eq!(say(&mut net, 0, 6, find(6, "port", false)), [(6, Ok(vec![notice(2, "port")]))], "another's");
    say(&mut net, 1, 7, withdraw(7, 2));
    assert_eq!(say(&mut net, 2, 8, find(8, "port", false)), [(8, Ok(vec![]))]);
    net.kill(0);
    assert_eq!(say(&mut net, 2, 9, find(9, "port", false)), [(9, Err(Fault::Gone))]);
}

fn said(acts: &[PmiAct]) -> String {
    acts.iter()
        .map(|act| match act {
            PmiAct::Send { rank, bytes } => format!("{rank}: {}", String::from_utf8_lossy(bytes)),
            other => format!("{other:?}\n"),
        })
        .collect()
}

proptest::proptest! {
    #[test]
    fn cve_2020_27745_whatever_tasks_say_is_survived(
        words in proptest::collection::vec((0..3_u32, "(cmd=[a-z-]{1,12}[ ;\n]|[a-z_]{1,9}=[^\n]{0,20}[ ;\n]| {0,5}[0-9]{1,9}|.{0,9}){0,9}"), 0..9),
        brought in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..99),
    ) {
        let (mut pmi, mut out) = (Pmi::new("7.0".into(), &layout(2, 1), &[0, 1]), Vec::new());
        for (rank, text) in &words {
            pmi.hear(*rank, text.as_bytes(), &mut out);
        }
        pmi.gathered(Ok(&brought), &mut out);
        let sent = out.iter().map(|act| if let PmiAct::Send { bytes, .. } = act { bytes.len() } else { 0 });
        let said: usize = words.iter().map(|(_, text)| text.len()).sum();
        proptest::prop_assert!(sent.sum::<usize>() <= (100 + said + brought.len()) * 100, "{out:?}");
    }
}

#[test]
fn pmi_one_as_mpich_speaks_it() {
    let mut pmi = Pmi::new("7.0".into(), &layout(2, 2), &[0, 1]);
    let mut out = Vec::new();
    pmi.hear(0, b"cmd=init pmi_version=1 pmi_sub", &mut out);
    pmi.hear(0, b"version=1\ncmd=get_my_kvsname\ncmd=put kvsname=7.0 key=card value=a=b c\n", &mut out);
    pmi.hear(0, b"cmd=get kvsname=7.0 key=PMI_process_mapping\ncmd=barrier_in\n", &mut out);
    assert_eq!(
        said(&out),
        "Joined(0)\n0: cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n0: cmd=my_kvsname rc=0 kvsname=7.0\n\
         0: cmd=put_result rc=0 msg=success\n0: cmd=get_result rc=0 msg=success value=(vector,(0,2,2))\n"
    );
    out.clear();
    pmi.hear(1, b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=barrier_in\n", &mut out);
    assert_eq!(out.pop(), Some(PmiAct::Barrier(b"card=a=b c\n".to_vec())));
    out.clear();
    pmi.gathered(Ok(b"card=a=b c\nfar=away\n"), &mut out);
    pmi.hear(1, b"cmd=get kvsname=7.0 key=card\ncmd=get key=nothing\ncmd=finalize\nrubbish\ncmd=rubbish\n", &mut out);
    assert_eq!(
        said(&out),
        "0: cmd=barrier_out\n1: cmd=barrier_out\n1: cmd=get_result rc=0 msg=success value=a=b c\n\
         1: cmd=get_result rc=-1 msg=key_not_found value=unknown\nFinalized(1)\n1: cmd=finalize_ack rc=0\n\
         Broken { rank: 1, text: \"cmd=rubbish\" }\n"
    );
    assert!(pmi.is_within(0) && !pmi.is_within(1));
}

#[test]
fn pmi_two() {
    let mut pmi = Pmi::new("7.0".into(), &layout(1, 1), &[0]);
    let mut out = Vec::new();
    let framed = |body: &str| format!("{:6}{body}", body.len()).into_bytes();
    pmi.hear(0, b"cmd=init pmi_version=2 pmi_subversion=0\n", &mut out);
    pmi.hear(0, &framed("cmd=fullinit;pmijobid=7.0;pmirank=0;threaded=FALSE;"), &mut out);
    pmi.hear(0, &framed("cmd=kvs-put;key=card;value=x;;y;thrid=5;"), &mut out);
    pmi.hear(0, &framed("cmd=info-getnodeattr;key=seg;wait=TRUE;"), &mut out);
    pmi.hear(0, &framed("cmd=info-putnodeattr;key=seg;value=1;"), &mut out);
    pmi.hear(0, &framed("cmd=kvs-fence;thrid=6;"), &mut out);
    assert_eq!(out.pop(), Some(PmiAct::Barrier(b"card=x;y\n".to_vec())));
    pmi.gathered(Ok(b"card=x;y\n"), &mut out);
    pmi.hear(0, &framed("cmd=kvs-get;key=card;"), &mut out);
    pmi.hear(0, &framed("cmd=finalize;"), &mut out);
    let text = said(&out);
    for part in [
        "rank=0;size=1;",
        "cmd=kvs-put-response;thrid=5;rc=0;",
        "cmd=info-getnodeattr-response;flag=TRUE;value=1;rc=0;",
        "cmd=kvs-fence-response;thrid=6;rc=0;",
        "cmd=kvs-get-response;flag=TRUE;value=x;;y;rc=0;",
        "Finalized(0)",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn names_are_asked_of_the_board_in_either_version() {
    let mut pmi = Pmi::new("7.0".into(), &layout(1, 2), &[0, 1]);
    let mut out = Vec::new();
    let framed = |body: &str| format!("{:6}{body}", body.len()).into_bytes();
    pmi.hear(0, b"cmd=init pmi_version=1 pmi_subversion=1\n", &mut out);
    pmi.hear(1, b"cmd=init pmi_version=2 pmi_subversion=0\n", &mut out);
    out.clear();
    pmi.hear(0, b"cmd=publish_name service=s port=tag#0$\n", &mut out);
    pmi.named(0, Err(()), &mut out);
    pmi.hear(0, b"cmd=lookup_name service=s\n", &mut out);
    pmi.named(0, Ok(Some("tag#1$")), &mut out);
    pmi.hear(1, &framed("cmd=name-lookup;name=s;thrid=4;"), &mut out);
    pmi.named(1, Ok(None), &mut out);
    pmi.named(1, Ok(None), &mut out);
    assert_eq!(
        said(&out),
        "Name { rank: 0, naming: Publish { service: \"s\", port: \"tag#0$\" } }\n\
         0: cmd=publish_result info=failed rc=-1 msg=no_such_name_or_taken\n\
         Name { rank: 0, naming: Lookup(\"s\") }\n0: cmd=lookup_result info=ok rc=0 msg=success port=tag#1$\n\
         Name { rank: 1, naming: Lookup(\"s\") }\n\
         1:     68cmd=name-lookup-response;thrid=4;rc=1;errmsg=no such name, or taken;"
    );
    out.clear();
    pmi.hear(0, b"cmd=publish_name port=x\n", &mut out);
    assert!(matches!(&out[..], [PmiAct::Broken { rank: 0, .. }]), "{out:?}");
}
