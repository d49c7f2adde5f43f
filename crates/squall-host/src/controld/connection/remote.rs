//! Daemons of other machines: authenticated by known keys, or by an invitation (token).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use squall_engine::control::Who;
use squall_files::place::Place;
use squall_files::users::{self, User};
use squall_model::config::Config;
use squall_model::encoding;
use squall_model::wire::client::{HostProblem, Refusal};
use squall_model::wire::join::{
    CONTROLLER_TOKEN, JoinAnswer, LOGIN_TOKEN, PublicKey, Question, TOKEN, VOUCHED, Vouched,
};
use squall_model::wire::{Proof, Role};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::{info, warn};

use super::{Acceptor, Arrival, Guest, OUTGOING_BYTES_MAX, PeerKind, Phase, RequestOrigin, Via, greeting};
use crate::controld::join;
use crate::controld::signing_keys::SigningKeys;
use crate::hop::{self, Reader, Writer};
use crate::link::Outgoing;
use crate::plugins::note_for_commands;
use crate::strangers::{Stranger, Strangers};
use crate::sys::clock;
use crate::trust::{Rights, Trust, Unwelcome, Wish};
use crate::{life, link};

/// Most connections at once that are not authenticated yet.
const STRANGERS_MAX: usize = 1024;
/// Time without a request after which a node daemon's connection for questions is closed. The node daemon then has to
/// reconnect.
const ENQUIRY_TIME: Duration = Duration::from_mins(5);
/// How often one of several controllers looks for an invitation, and the pause between two looks.
const ENROL_TRIES: u32 = 6;
const ENROL_PAUSE: Duration = Duration::from_millis(250);
/// Interval at which a connected node's key is checked to be still trusted.
const REVISIT: Duration = Duration::from_secs(2);

/// Keys and settings with which the controller authenticates other machines.
#[derive(Clone, Debug)]
pub(in crate::controld) struct Gate {
    place: Place,
    ring: SigningKeys,
    trust: Trust,
    /// Lowest uid of users for whom other machines may vouch.
    min_uid: u32,
}

impl Gate {
    /// Opens the controller's TCP port, if the configuration names one; None if not.
    pub(in crate::controld) async fn open(
        place: &Place,
        config: &Config,
        ring: &SigningKeys,
    ) -> io::Result<Option<(TcpListener, Self)>> {
        note_for_commands(place, config)?;
        if config.slurmctld_port.0 == 0 {
            place.note_reached_as("")?;
            return Ok(None);
        }
        place.note_reached_as(&life::reached_as(config))?;
        let listener = hop::listen(config.slurmctld_host.0.parse().ok(), config.slurmctld_port.0).await?;
        let trust = Trust::of(place);
        Ok(Some((listener, Self { place: place.clone(), ring: ring.clone(), trust, min_uid: config.min_uid.0 })))
    }

    /// Returns what the machine `name` with this key may do. With the controllers' own key it is one of them.
    fn rights(&self, name: &str, key: &PublicKey) -> Rights {
        if *key == self.ring.public().0 { Rights::CONTROLLER } else { self.trust.rights(name, key) }
    }
}

pub(super) async fn accept(acceptor: Arc<Acceptor>, listener: TcpListener, gate: Gate) {
    let gate = Arc::new(gate);
    let strangers = Strangers::new(STRANGERS_MAX);
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(caller) => caller,
            Err(e) => {
                warn!(error = %e, "cannot accept a connection of another machine");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (guest, gate, seats) = (acceptor.guest(), Arc::clone(&gate), Arc::clone(&acceptor.seats));
        let (stranger, ended) = strangers.enter(address.ip());
        tokio::spawn(async move {
            let Ok(visitor) = ended.or(guest.meet(stream, address, &gate, &stranger)).await else { return };
            drop(stranger);
            let Ok(_seat) = seats.try_acquire() else { return };
            drop(guest.host(visitor, &gate).await);
        });
    }
}

/// Purpose of a daemon's connection.
enum Purpose {
    /// The daemon is a child of the controller in the tree of nodes.
    Tree,
    /// The daemon asks for the cluster's configuration, or for keys and addresses of nodes.
    Enquiry,
    /// The daemon forwards the requests of a client, and vouches for this identity of the client.
    Client(Vouched),
    /// The daemon wants to know which controller leads, of a standby.
    Watch,
    /// The machine becomes a further controller.
    Join,
}

/// A daemon with a name that is proven by its key.
struct Visitor {
    name: String,
    key: PublicKey,
    rights: Rights,
    address: SocketAddr,
    what: Purpose,
    reader: Reader,
    writer: Writer,
}

impl Guest {
    /// Authenticates the peer. A peer with neither a known key nor an invitation is refused, and gets no other
    /// information.
    async fn meet(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        gate: &Gate,
        stranger: &Stranger,
    ) -> io::Result<Visitor> {
        let (mut reader, mut writer, key, called) =
            hop::answer_as_any(stream, &gate.ring.answering(), stranger, gate.ring.all_mark()).await?;
        let hello = greeting(&mut reader).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if called != gate.ring.public().0
            && let Role::Node(name) | Role::Enquirer(name) = &hello.role
        {
            info!(machine = name, %address, "it still has an old key of the controllers, and is told the new one");
        }
        if !self.understands(&hello) {
            link::write(&mut writer, &self.hello(true)).await?;
            return Err(io::ErrorKind::InvalidData.into());
        }
        if self.leader().is_some() {
            // Any peer may know the leader's name: it knows the controllers' key.
            link::write(&mut writer, &self.hello(true)).await?;
            let Role::Enquirer(name) = hello.role else { return Err(io::ErrorKind::NotConnected.into()) };
            let rights = gate.rights(&name, &key);
            let visitor = Visitor { name, key, rights, address, what: Purpose::Watch, reader, writer };
            return if rights.any() { Ok(visitor) } else { Err(io::ErrorKind::PermissionDenied.into()) };
        }
        let (name, mut what) = match (hello.role, &hello.proof) {
            (Role::Node(name), _) => (name, Purpose::Tree),
            (Role::Enquirer(name), _) => (name, Purpose::Enquiry),
            (Role::Client(_), Proof::Scheme(scheme, bytes)) if scheme == VOUCHED => {
                let vouched: Vouched = encoding::from_slice(bytes).map_err(|_| io::ErrorKind::InvalidData)?;
                (vouched.node.clone(), Purpose::Client(vouched))
            }
            _ => return Err(io::ErrorKind::PermissionDenied.into()),
        };
        let asks = matches!(what, Purpose::Enquiry);
        let mut rights = gate.rights(&name, &key);
        if rights.any() || asks {
            link::write(&mut writer, &self.hello(true)).await?;
        } else if matches!(what, Purpose::Client(_)) {
            link::write(&mut writer, &self.hello(true)).await?;
            link::deny(&mut reader, &mut writer, Refusal::NotFrom(name, HostProblem::Revoked)).await?;
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let invitation = wish(hello.proof).filter(|_| asks);
        if !rights.any() && invitation.is_none() {
            return refuse(&mut writer, asks, &name).await;
        }
        if let Some((wish, secret)) = invitation {
            let new = !rights.any();
            let enrolled = if new { self.enrol(&gate.trust, &name, &key, (secret, wish)).await? } else { Ok(()) };
            // Perhaps it asks again because the controller could not share its key the first time.
            let enrolled = if enrolled.is_ok() { self.share().await } else { enrolled };
            if let Err(unwelcome) = enrolled {
                let (Unwelcome::Never(reason) | Unwelcome::NotNow(reason)) = &unwelcome;
                warn!(%address, node = name, %reason, "a machine may not join");
                let told = match unwelcome {
                    Unwelcome::Never(reason) => JoinAnswer::Refused(reason),
                    Unwelcome::NotNow(reason) => JoinAnswer::NotNow(reason),
                };
                link::write(&mut writer, &told).await?;
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            if new {
                info!(node = name, %address, %wish, "a machine has joined");
                rights = gate.rights(&name, &key);
                if wish == Wish::Controller {
                    what = Purpose::Join;
                }
            }
        }
        Ok(Visitor { name, key, rights, address, what, reader, writer })
    }

    /// Whether a node of this name is connected, as far as is known: without an answer it may be.
    async fn has_connected(&self, name: &str) -> bool {
        let (connected, answer) = oneshot::channel();
        let asked = self.arrivals.nodes.send(Arrival::Sought { node: name.to_owned(), connected }).await;
        asked.is_err() || answer.await.unwrap_or(true)
    }

    /// Enrols a machine with an invitation. Where there are several controllers, the invitation may be on its way from
    /// another one. Inner Err: the machine is refused, with the reason.
    async fn enrol(
        &self,
        trust: &Trust,
        name: &str,
        key: &PublicKey,
        (secret, wish): (Vec<u8>, Wish),
    ) -> io::Result<Result<(), Unwelcome>> {
        let connected = wish == Wish::Node && self.has_connected(name).await;
        let mut left = if self.others.is_some() { ENROL_TRIES } else { 1 };
        loop {
            left -= 1;
            let (trust, name, key, secret) = (trust.clone(), name.to_owned(), *key, secret.clone());
            let enrol = move || trust.enrol(&name, &key, (&secret, wish), clock::now().0 / 1_000_000, connected);
            match tokio::task::spawn_blocking(enrol).await.map_err(io::Error::other)? {
                Err(Unwelcome::Never(_)) if left > 0 => tokio::time::sleep(ENROL_PAUSE).await,
                enrolled => return Ok(enrolled),
            }
        }
    }

    /// Waits until the other controllers have what was changed in `keys/`, if there are any: whichever of them leads next
    /// has to know a machine that was told that it has joined. Err: they don't have it in time.
    async fn share(&self) -> Result<(), Unwelcome> {
        match &self.others {
            Some(others) if !others.asker.is_shared().await => Err(Unwelcome::NotNow(
                "the controller can't pass the machine's key to the other controllers, as etcd does not take it"
                    .to_owned(),
            )),
            _ => Ok(()),
        }
    }

    async fn host(&self, visitor: Visitor, gate: &Gate) -> io::Result<()> {
        let Visitor { name, key, rights, address, what, mut reader, mut writer } = visitor;
        let revoked = async {
            while gate.rights(&name, &key) == rights {
                tokio::time::sleep(REVISIT).await;
            }
            warn!(node = name, "what this machine may do has changed: its connection is ended");
            Err(io::ErrorKind::PermissionDenied.into())
        };
        let machine: Arc<str> = Arc::from(name.as_str());
        // Its commands are counted apart, and by their users.
        let daemon = match what {
            Purpose::Client(_) => None,
            _ => match self.machines.enter_from(&machine) {
                None => {
                    warn!(node = name, %address, "the machine has too many connections: this one is ended");
                    return Ok(());
                }
                entered => entered,
            },
        };
        match what {
            Purpose::Join => bring(&mut reader, &mut writer, &name, gate).await,
            Purpose::Watch => self.watched(&mut reader, &mut writer, revoked).await,
            Purpose::Enquiry => self.answer(&mut reader, &mut writer, (&name, &key, address), gate).await,
            Purpose::Tree if !rights.node => {
                warn!(node = name, "a login host may not be a node");
                Err(io::ErrorKind::PermissionDenied.into())
            }
            Purpose::Tree => {
                let Some(daemon) = daemon else { return Ok(()) };
                let frames = async {
                    tokio::select! {
                        done = self.frames(&mut reader, &machine, daemon.allowances()) => done,
                        done = revoked => done,
                    }
                };
                let out = Outgoing::new(OUTGOING_BYTES_MAX);
                self.talk(writer, PeerKind::Node(Some(name.clone())), out, frames).await
            }
            Purpose::Client(vouched) => {
                let who = match self.believe(&vouched, rights, gate.min_uid).await? {
                    Ok(who) => who,
                    Err(problem) => {
                        warn!(node = name, uid = vouched.uid, ?problem, "the machine may not vouch for a user");
                        return link::deny(&mut reader, &mut writer, Refusal::NotFrom(name.clone(), problem)).await;
                    }
                };
                let via = Via { host: machine, login: rights.login.is_some(), controller: rights.controller };
                let Ok(_seat) = self.clients.try_acquire() else { return Ok(()) };
                let Some(host) = self.hosts.enter_from(&via.host) else { return Ok(()) };
                let Some(entered) = self.users.enter(who.owner.uid) else { return Ok(()) };
                let account = entered.account().by(&host);
                let way = RequestOrigin { via: Some(&via), relayed: true, over_http: vouched.over_http };
                self.converse(&mut reader, writer, &who, way, &account, revoked).await
            }
        }
    }

    /// Tells a daemon which controller leads, whenever that changes, until this one leads.
    async fn watched(
        &self,
        reader: &mut Reader,
        writer: &mut Writer,
        revoked: impl Future<Output = io::Result<()>>,
    ) -> io::Result<()> {
        let mut phase = self.phase.clone();
        let telling = async {
            while phase.changed().await.is_ok() && !matches!(*phase.borrow_and_update(), Phase::Leads(_)) {
                link::write(writer, &self.hello(true)).await?;
            }
            Ok(())
        };
        tokio::select! {
            done = telling => done,
            // It asks nothing: this is the end of its connection.
            read = link::read::<Question>(reader) => read.map(drop),
            done = revoked => done,
        }
    }

    /// Answers the questions of a daemon, until it asks no more.
    async fn answer(
        &self,
        reader: &mut Reader,
        writer: &mut Writer,
        (name, key, address): (&str, &PublicKey, SocketAddr),
        gate: &Gate,
    ) -> io::Result<()> {
        loop {
            let question = timeout(ENQUIRY_TIME, link::read::<Question>(reader)).await;
            let Some(question) = question.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? else {
                return Ok(());
            };
            let rights = gate.rights(name, key);
            let told = match question {
                Question::Charter { port } if rights.any() => {
                    let address = SocketAddr::new(address.ip().to_canonical(), port).to_string();
                    if rights.node {
                        gate.trust.note_address(name, &address)?;
                    }
                    let [config, devices] = [gate.place.config(), gate.place.devices()]
                        .map(|path| std::fs::read_to_string(path).unwrap_or_default());
                    let config = Config::text_for_nodes(&config, &devices);
                    let (key, signer) = self.ring.public();
                    JoinAnswer::Charter { config, address, signer: Some(signer), key: Some(key) }
                }
                Question::Peer(other) if rights.node => JoinAnswer::Peer(gate.trust.peer(&other).unwrap_or_default()),
                Question::TokenKey if rights.controller => match self.bearers.key() {
                    Ok(key) => JoinAnswer::TokenKey(key.to_vec().into()),
                    Err(e) => JoinAnswer::Refused(format!("the key of tokens can't be read: {e}")),
                },
                Question::Charter { .. } | Question::Peer(_) | Question::Controller | Question::TokenKey => {
                    return refuse(writer, true, name).await;
                }
            };
            link::write(writer, &told).await?;
        }
    }

    /// Identifies a client for which another machine vouches. A node never vouches for an operator. Err: why the
    /// machine is not trusted in this.
    async fn believe(
        &self,
        vouched: &Vouched,
        Rights { login, controller, .. }: Rights,
        min_uid: u32,
    ) -> io::Result<Result<Who, HostProblem>> {
        let (own_uid, own_gid) = (rustix::process::geteuid(), rustix::process::getegid());
        // Where the cluster serves a single user, that user may have another id on another machine.
        let single = !own_uid.is_root() && vouched.owner;
        let (uid, gid) = if single {
            (own_uid.as_raw(), own_gid.as_raw())
        } else if controller {
            (vouched.uid, vouched.gid)
        } else {
            let Vouched { uid, gid, .. } = *vouched;
            let lowest = if login.is_some_and(|login| login.allow_root) { 0 } else { min_uid.max(1) };
            let known = move || vouchable(uid, gid, lowest, users::by_uid(uid).as_ref(), users::groups);
            match tokio::task::spawn_blocking(known).await.map_err(io::Error::other)? {
                Ok(()) => (uid, gid),
                Err(problem) => return Ok(Err(problem)),
            }
        };
        let who = self.identify(uid, gid).await?;
        Ok(Ok(Who { operator: who.operator && login.is_some(), job: vouched.job, ..who }))
    }
}

/// Returns what a machine wants to become, and the secret of its invitation. None: it brings no invitation.
fn wish(proof: Proof) -> Option<(Wish, Vec<u8>)> {
    let Proof::Scheme(scheme, secret) = proof else { return None };
    let wish = match scheme.as_str() {
        TOKEN => Wish::Node,
        LOGIN_TOKEN => Wish::Login,
        CONTROLLER_TOKEN => Wish::Controller,
        _ => return None,
    };
    Some((wish, secret))
}

/// Whether another machine may vouch for these ids: those of a user from uid `lowest` on who exists on this machine,
/// and of a group of that user. Otherwise an attacker in control of one machine could choose any group, or be root, on
/// all others.
fn vouchable(
    uid: u32,
    gid: u32,
    lowest: u32,
    user: Option<&User>,
    groups: impl Fn(&str, u32) -> Vec<u32>,
) -> Result<(), HostProblem> {
    if uid < lowest {
        return Err(if uid == 0 { HostProblem::Root } else { HostProblem::SystemUser(lowest) });
    }
    let Some(user) = user else { return Err(HostProblem::UnknownUser(uid)) };
    if gid == user.gid || groups(&user.name, user.gid).contains(&gid) {
        return Ok(());
    }
    Err(HostProblem::NotInGroup(gid))
}

/// Sends a machine that becomes a further controller what it needs.
async fn bring(reader: &mut Reader, writer: &mut Writer, name: &str, gate: &Gate) -> io::Result<()> {
    let question = timeout(ENQUIRY_TIME, link::read::<Question>(reader)).await;
    let Some(Question::Controller) = question.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? else {
        return Ok(());
    };
    let place = gate.place.clone();
    let told = match tokio::task::spawn_blocking(move || join::files(&place)).await.map_err(io::Error::other)? {
        Ok(files) => JoinAnswer::Controller(files),
        Err(e) => JoinAnswer::Refused(format!("the controller can't read its keys: {e}")),
    };
    warn!(controller = name, "this machine has got the keys of the controllers");
    link::write(writer, &told).await
}

async fn refuse<T>(writer: &mut Writer, asks: bool, name: &str) -> io::Result<T> {
    if asks {
        let reason = format!(
            "the controller does not know this machine as node {name}: `squall token {name}` there lets it join; `squall \
             token --login {name}`, if it is a login host"
        );
        link::write(writer, &JoinAnswer::Refused(reason)).await?;
    }
    Err(io::ErrorKind::PermissionDenied.into())
}

#[cfg(test)]
mod tests {
    use squall_files::users::User;
    use squall_model::wire::client::HostProblem;

    use super::vouchable;

    /// Regression test of fault C2 in faults.md.
    #[test]
    fn cve_2018_10995_a_machine_vouches_for_ordinary_users_in_their_own_groups() {
        let ann = User { name: "ann".into(), uid: 1001, gid: 1001, home: String::new(), shell: String::new() };
        let groups = |name: &str, gid: u32| if name == "ann" { vec![gid, 2000] } else { vec![gid] };
        let may = |uid, gid, lowest, user: Option<&User>| vouchable(uid, gid, lowest, user, groups).is_ok();
        assert!(may(1001, 1001, 1000, Some(&ann)) && may(1001, 2000, 1000, Some(&ann)));
        for gid in [0, 6, 42, 999, 1002] {
            assert!(!may(1001, gid, 1000, Some(&ann)), "group {gid}");
        }
        assert!(!may(1001, 1001, 1000, None), "a user whom nobody knows");
        assert!(!may(1001, 1001, 1002, Some(&ann)), "below the lowest");
        let system = |uid| User { uid, gid: uid, ..ann.clone() };
        for (uid, lowest, problem) in
            [(0, 1000, HostProblem::Root), (0, 1, HostProblem::Root), (999, 1000, HostProblem::SystemUser(1000))]
        {
            assert_eq!(vouchable(uid, uid, lowest, Some(&system(uid)), groups), Err(problem));
        }
        // A host that is trusted with root.
        assert!(may(0, 0, 0, Some(&system(0))) && may(999, 999, 0, Some(&system(999))) && !may(1001, 0, 0, Some(&ann)));
    }
}
