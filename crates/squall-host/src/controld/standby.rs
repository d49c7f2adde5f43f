//! What a standby answers to commands that ask for its own state (`squeue --from-standby`).

use std::collections::HashMap;
use std::time::Duration;

use squall_engine::control::{CallerId, Controller, Out};
use squall_model::time::Time;

use super::connection::Arrival;
use crate::link::Outgoing;

/// Interval of the check whether a slow reader of a list has received its page.
const READER_POLL: Duration = Duration::from_millis(5);

/// The clients of a standby. Dropping this ends their connections: when the standby begins to lead, they connect again.
#[derive(Default)]
pub(super) struct Readers {
    peers: HashMap<u64, Outgoing>,
    /// Whether some list has further pages.
    lists: bool,
    /// Whether no client with such a list had received its last page.
    waits: bool,
}

impl Readers {
    /// Handles an event of a connection, with the state that the standby has. `now`: the time of that state's clock;
    /// `ahead_us`: by how much the wall clock is ahead of it.
    pub(super) fn ingest(&mut self, arrival: Arrival, machine: &mut Controller, (now, ahead_us): (Time, i64)) {
        match arrival {
            Arrival::Opened { id, out, .. } => {
                self.peers.insert(id, out);
            }
            Arrival::Closed { id, .. } => {
                self.peers.remove(&id);
                machine.read_no_more(CallerId(id));
            }
            Arrival::Asked { id, who, mut request, .. } => {
                request.on_clock_ahead(-ahead_us);
                let mut out = Out::default();
                machine.read(now, CallerId(id), &who, request, &mut out);
                self.answer(out, ahead_us);
                (self.lists, self.waits) = (true, false);
            }
            // Nodes are passed on to the controller that leads.
            Arrival::Frame { .. }
            | Arrival::Filter(_)
            | Arrival::CastOut { .. }
            | Arrival::ProgramEnded { .. }
            | Arrival::PowerProgramEnded { .. }
            | Arrival::Sought { .. }
            | Arrival::UsersSought { .. }
            | Arrival::Groups { .. } => {}
        }
    }

    /// Whether lists have further pages, for [`Self::page`].
    pub(super) fn has_lists(&self) -> bool {
        self.lists
    }

    /// Waits until the next page may be due: not at all, or for a moment if clients read slowly.
    pub(super) async fn due(&self) {
        if self.waits {
            tokio::time::sleep(READER_POLL).await;
        }
    }

    /// Sends the next page of a list to a client that has received the last one.
    pub(super) fn page(&mut self, machine: &mut Controller, (now, ahead_us): (Time, i64)) {
        let peers = &self.peers;
        self.waits = !machine.rotate_lists(|caller| peers.get(&caller.0).is_none_or(Outgoing::has_room));
        if !self.waits {
            let mut out = Out::default();
            machine.read_page(now, &mut out);
            self.answer(out, ahead_us);
        }
        self.lists = machine.lists();
    }

    fn answer(&mut self, out: Out, ahead_us: i64) {
        for (caller, mut answer) in out.answers {
            answer.on_clock_ahead(ahead_us);
            if let Some(peer) = self.peers.get(&caller.0)
                && peer.push(&answer).is_err()
            {
                peer.close();
            }
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.peers.values().for_each(Outgoing::close);
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use squall_engine::control::Controller;
    use squall_engine::control::state::State;
    use squall_files::place::{Place, SocketPath};
    use squall_model::config::Config;
    use squall_model::encoding::Decoded;
    use squall_model::time::Time;
    use squall_model::wire::client::{Answer, AnyRequest, HostRequest, Refusal, Request};
    use squall_model::wire::join::{Bearer, JoinAnswer, Question};
    use squall_model::wire::{Hello, Leader, Role};
    use tokio::net::UnixStream;

    use super::Readers;
    use crate::bearer::Bearers;
    use crate::controld::connection::{Acceptor, Arrival, Gate, Inbox, Others, PeerKind};
    use crate::controld::{has_joined, join, listen};
    use crate::hop::{self, Reader, Writer};
    use crate::leader::Controllers;
    use crate::link;
    use crate::noise::KeyPair;
    use crate::sys::clock;
    use crate::trust::{Part, Trust};

    const PATIENCE: Duration = Duration::from_millis(400);

    /// Two controllers, `head1` and `head2`, in one process.
    struct Site {
        dir: PathBuf,
        addresses: [String; 2],
        acceptors: Vec<Arc<Acceptor>>,
        inboxes: Vec<Inbox>,
        bearers: Vec<Bearers>,
        /// The way of node `n1` to the controllers.
        node: Controllers,
    }

    impl Site {
        async fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("squall-standby-{name}-{}", std::process::id()));
            drop(std::fs::remove_dir_all(&dir));
            let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
            let addresses = [free(), free()];
            let entry =
                |n: usize| format!("[[controllers]]\nname = \"head{}\"\naddress = \"{}\"\n", n + 1, addresses[n]);
            let config = Config::from_toml(&(entry(0) + &entry(1))).unwrap();
            let (keys, own) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
            let (mut acceptors, mut inboxes, mut bearers) = (Vec::new(), Vec::new(), Vec::new());
            for head in ["head1", "head2"] {
                let place = Place::at(&dir.join(head)).unwrap();
                std::fs::create_dir_all(place.run()).unwrap();
                let trust = Trust::of(&place);
                trust.write(&["controller"], &keys.to_bytes()[..]).unwrap();
                trust.own_node("n1", &own.public).unwrap();
                let config = config.clone().as_controller(head).unwrap();
                let asker = crate::controld::Asker::new();
                let mut asks = asker.inbox().unwrap();
                // Whatever changes is shared at once.
                tokio::spawn(async move {
                    while let Some(ask) = asks.recv().await {
                        let _ = ask.send(());
                    }
                });
                let others = Others::of(&place, &config, head, asker).unwrap();
                assert!(others.is_some());
                let ring = crate::controld::SigningKeys::open(&place, None).unwrap();
                bearers.push(Bearers::of(&place, &config));
                let tokens = Bearers::of(&place, &config);
                let (acceptor, inbox) = Acceptor::new(("lab".into(), ring.clone()), 1024, tokens, others);
                let (tcp, gate) = Gate::open(&place, &config, &ring).await.unwrap().unwrap();
                tokio::spawn(Arc::clone(&acceptor).accept_remote(tcp, gate));
                tokio::spawn(Arc::clone(&acceptor).accept(listen(&place).unwrap()));
                acceptors.push(acceptor);
                inboxes.push(inbox);
            }
            let node = Controllers::new("n1", own, keys.public, addresses.iter().rev().cloned().collect());
            Self { dir, addresses, acceptors, inboxes, bearers, node }
        }

        /// The first controller leads in the term of this number, the other one follows.
        fn first_leads(&self, term: u64) {
            self.acceptors[0].lead(Some(term));
            let leader = Leader { address: self.addresses[0].clone(), term };
            self.acceptors[1].follow(Some(&leader), Some(Instant::now()));
        }

        /// Connects a command to the second controller's socket.
        async fn command(&self, role: Role) -> (Reader, Writer, Hello) {
            let path = Place::at(&self.dir.join("head2")).unwrap().controller_socket();
            let stream = UnixStream::connect(SocketPath::new(&path).unwrap().as_path()).await.unwrap();
            let (mut reader, mut writer) = hop::local(stream).unwrap();
            link::write(&mut writer, &Hello::new(role)).await.unwrap();
            let hello = read(&mut reader).await;
            (reader, writer, hello)
        }
    }

    impl Drop for Site {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.dir));
        }
    }

    async fn read<T: Decoded>(reader: &mut Reader) -> T {
        link::read(reader).await.unwrap().unwrap()
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let limited = async { tokio::time::timeout(Duration::from_secs(30), test).await.unwrap() };
        runtime.block_on(limited);
    }

    #[test]
    fn commands_at_a_standby_reach_the_controller_that_leads() {
        run(async {
            let mut site = Site::new("command").await;
            site.first_leads(7);
            let (mut reader, mut writer, hello) = site.command(Role::Client("squeue".into())).await;
            assert_eq!((hello.role, hello.cluster.as_str()), (Role::Controller, "lab"));
            link::write(&mut writer, &Request::Caller).await.unwrap();
            let Some(Arrival::Opened { out, .. }) = site.inboxes[0].users.recv().await else { panic!("no client") };
            let Some(Arrival::Asked { who, via, request, .. }) = site.inboxes[0].users.recv().await else { panic!() };
            let own = rustix::process::geteuid().as_raw();
            assert_eq!((request, who.owner.uid, who.operator), (Request::Caller.into(), own, true));
            assert_eq!(via.map(|via| (via.host.to_string(), via.login)), Some(("head2".to_owned(), true)));
            out.push(&Answer::Done).unwrap();
            assert_eq!(read::<Answer>(&mut reader).await, Answer::Done);
            // The leader fails, and the standby takes over: the command has to come again.
            site.acceptors[1].lead(Some(8));
            assert!(link::read::<Answer>(&mut reader).await.unwrap().is_none());
        });
    }

    #[test]
    fn a_command_is_told_that_no_controller_leads() {
        run(async {
            let site = Site::new("none").await;
            site.acceptors.iter().for_each(|acceptor| acceptor.follow(None, None));
            let (mut reader, mut writer, _) = site.command(Role::Client("squeue".into())).await;
            link::write(&mut writer, &Request::Caller).await.unwrap();
            let Answer::Refused(Refusal::NoLeader(tried)) = read(&mut reader).await else { panic!("it is answered") };
            let each = site.addresses.clone().map(|address| format!("{address} knows of none"));
            assert_eq!(tried, each.join("; "));
        });
    }

    #[test]
    fn a_reader_gets_what_the_standby_has_with_its_age() {
        run(async {
            let mut site = Site::new("reader").await;
            site.first_leads(7);
            let (mut reader, mut writer, hello) = site.command(Role::Reader("sinfo".into())).await;
            let Role::Standby(standby) = hello.role else { panic!("{hello:?}") };
            assert_eq!((standby.name.as_str(), standby.leader.map(|leader| leader.term)), ("head2", Some(7)));
            assert!(standby.age_ms.is_some_and(|ms| ms < 10_000));
            let mut machine = Controller::new(State::default());
            let mut readers = Readers::default();
            let host = HostRequest::Controllers.into();
            for request in [Request::Nodes.into(), Request::ShutDown { keep_jobs: true }.into(), host] {
                link::write::<AnyRequest>(&mut writer, &request).await.unwrap();
            }
            // The connection and two requests: what is known of controllers needs no state.
            for _ in 0..3 {
                let arrival = site.inboxes[1].users.recv().await.unwrap();
                readers.ingest(arrival, &mut machine, (Time(1), 0));
            }
            while readers.has_lists() {
                readers.due().await;
                readers.page(&mut machine, (Time(1), 0));
            }
            let mut nodes = false;
            let mut refused = false;
            let mut names = Vec::new();
            for _ in 0..3 {
                match read(&mut reader).await {
                    Answer::Nodes(all) => nodes = all.is_empty(),
                    Answer::Refused(Refusal::NotSupported(_)) => refused = true,
                    Answer::Controllers(all) => names = all.into_iter().map(|one| one.name).collect(),
                    other => panic!("{other:?}"),
                }
            }
            assert!(nodes && refused && names == ["head1", "head2"], "{names:?}");
            drop(readers);
            assert!(link::read::<Answer>(&mut reader).await.unwrap().is_none(), "its clients go when it leads");
        });
    }

    #[test]
    fn a_further_controller_gets_the_keys_once() {
        run(async {
            let site = Site::new("join").await;
            site.first_leads(7);
            let place = |name: &str| Place::at(&site.dir.join(name)).unwrap();
            std::fs::write(place("head1").config(), "cluster = \"lab\"\n").unwrap();
            let trust = Trust::of(&place("head1"));
            trust.own_key(Some("n1")).unwrap();
            let now_s = clock::now().0 / 1_000_000;
            let token = trust.invite("head3", Part::Controller, now_s, 60).unwrap();
            // The first address is that of a standby, which names the leader.
            let addresses: Vec<String> = site.addresses.iter().rev().cloned().collect();
            let ask = |place: Place| {
                let (addresses, token) = (addresses.clone(), token.clone());
                tokio::task::spawn_blocking(move || join(&place, "head3", addresses, &token))
            };
            ask(place("head3")).await.unwrap().unwrap();
            let joined = Trust::of(&place("head3"));
            assert_eq!(joined.controller_key().unwrap().public, trust.controller_key().unwrap().public);
            assert!(joined.peer("n1").unwrap().is_some() && joined.read(&["own-n1"]).unwrap().is_none());
            let tokens = [&trust, &joined].map(|trust| trust.read(&["jwt_hs256.key"]).unwrap().unwrap());
            assert!(tokens[0].len() == 32 && tokens[0] == tokens[1], "users' tokens are good at it from its start");
            assert!(has_joined(&place("head3"), "head3") && !has_joined(&place("head3"), "head2"));
            let again = ask(place("head3")).await.unwrap().unwrap_err().to_string();
            assert!(again.contains("belongs to a cluster already"), "{again}");
            let used = ask(place("head4")).await.unwrap().unwrap_err().to_string();
            assert!(used.contains("the token does not hold for controller head3"), "{used}");
        });
    }

    /// faults.md R3.
    #[test]
    fn a_token_is_good_at_every_controller_and_its_key_goes_to_controllers_only() {
        run(async {
            let site = Site::new("tokens").await;
            let (own, now_s) = (rustix::process::geteuid().as_raw(), clock::now().0 / 1_000_000);
            let own = squall_files::users::by_uid(own).unwrap().name;
            let made = |n: usize| site.bearers[n].issue(&own, Some(600), false, now_s).unwrap();
            let is_good = |n: usize, token: &str| {
                site.bearers[n].user(&Bearer { token: token.to_owned(), user: None, passed: None }).is_ok()
            };
            // The second has made a key of its own, as an earlier release did.
            let old = made(1);
            site.first_leads(7);
            let token = made(0);
            assert!(is_good(0, &token) && !is_good(1, &token) && is_good(1, &old));
            let keeping = tokio::spawn(Arc::clone(&site.acceptors[1]).keep_token_key());
            while !is_good(1, &token) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert!(!is_good(1, &old) && is_good(0, &made(1)), "there is one key");
            keeping.abort();
            // It takes over: what the first has made is good, and what it makes itself is, at the first, too.
            site.acceptors[1].lead(Some(8));
            assert!(is_good(1, &token) && is_good(0, &made(1)));
            // Others than controllers don't get the key.
            let mut met = site.node.call(&Hello::new(Role::Enquirer("n1".into())), PATIENCE).await.unwrap();
            link::write(&mut met.writer, &Question::TokenKey).await.unwrap();
            let told = read::<JoinAnswer>(&mut met.reader).await;
            assert!(matches!(told, JoinAnswer::Refused(_)), "{told:?}");
        });
    }

    #[test]
    fn a_node_finds_the_leader_and_notices_when_another_one_leads() {
        run(async {
            let mut site = Site::new("node").await;
            site.first_leads(7);
            let hello = Hello::new(Role::Node("n1".into()));
            let met = site.node.call(&hello, PATIENCE).await.unwrap();
            assert_eq!((met.term, &met.hello.role), (7, &Role::Controller));
            let opened = site.inboxes[0].nodes.recv().await;
            assert!(matches!(opened, Some(Arrival::Opened { kind: PeerKind::Node(Some(name)), .. }) if name == "n1"));
            // The first one stops without a word; the other one takes over.
            site.acceptors[1].lead(Some(8));
            site.node.moved(met.term).await;
            let met = site.node.call(&hello, PATIENCE).await.unwrap();
            assert_eq!(met.term, 8);
            // That one is gone again, and the old one goes on for a moment: it is not believed.
            site.acceptors[1].follow(None, None);
            let refused = site.node.call(&hello, PATIENCE).await.err().unwrap().to_string();
            assert!(refused.contains("led before"), "{refused}");
        });
    }
}
