//! Tasks of `srun`.

use std::collections::BTreeMap;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use squall_model::encoding::ByteBuf;
use squall_model::job::ExitCode;
use squall_model::step::{ClientAddress, FromStep, Program, RankSet, Stream, TaskProgram, ToStep};
use squall_model::wire::stepd::FromStepd;
use squall_model::wire::{Hello, Role};

use super::testing::launch;
use super::{Peer, Step, Test, code, lives, signal};

pub(crate) const TESTS: [Test; 10] = [
    ("tasks::each_rank_has_its_output_and_exit", each_rank_has_its_output_and_exit),
    ("tasks::a_command_that_is_not_there_exits_2", a_command_that_is_not_there_exits_2),
    ("tasks::input_goes_to_all_or_to_one_and_ends", input_goes_to_all_or_to_one_and_ends),
    (
        "tasks::much_output_comes_whole_and_in_order_though_srun_reads_late",
        much_output_comes_whole_and_in_order_though_srun_reads_late,
    ),
    ("tasks::output_files_by_rank_joined_or_thrown_away", output_files_by_rank_joined_or_thrown_away),
    ("tasks::rank_0_has_a_terminal_of_the_right_size", rank_0_has_a_terminal_of_the_right_size),
    ("tasks::a_vanished_srun_ends_the_step", a_vanished_srun_ends_the_step),
    ("tasks::a_failing_task_ends_the_others_if_so_asked", a_failing_task_ends_the_others_if_so_asked),
    ("tasks::a_signal_from_srun_reaches_children_too", a_signal_from_srun_reaches_children_too),
    (
        "tasks::cve_2022_29502_who_does_not_know_the_cookie_gets_nothing",
        cve_2022_29502_who_does_not_know_the_cookie_gets_nothing,
    ),
];

/// The `srun` side: what was heard so far.
struct Srun {
    peer: Peer,
    output: BTreeMap<(u32, bool), Vec<u8>>,
    exits: BTreeMap<u32, ExitCode>,
    failed: Vec<(u32, u8, String)>,
    notices: Vec<String>,
}

impl Srun {
    /// Takes in one message; false at the last.
    fn hear(&mut self) -> bool {
        match self.peer.receive().expect("more before Done") {
            FromStep::Output { rank, stderr, bytes } => {
                self.output.entry((rank, stderr)).or_default().extend_from_slice(&bytes);
            }
            FromStep::Exited { rank, exit, .. } => {
                self.exits.insert(rank, exit);
            }
            FromStep::Failed { rank, code, error } => self.failed.push((rank, code, error)),
            FromStep::Notice(text) => self.notices.push(text),
            FromStep::Done => return false,
            FromStep::Hello { .. }
            | FromStep::Started(_)
            | FromStep::Within(_)
            | FromStep::Aborted { .. }
            | FromStep::X11 { .. }
            | FromStep::Birth(_)
            | FromStep::Pass { .. } => {}
        }
        true
    }
    fn until_done(&mut self) {
        while self.hear() {}
    }
    fn stdout(&self, rank: u32) -> String {
        String::from_utf8_lossy(self.output.get(&(rank, false)).map_or(&[], Vec::as_slice)).into_owned()
    }
    fn until_output(&mut self, rank: u32, text: &str) {
        while !self.stdout(rank).contains(text) {
            let more = self.hear();
            assert!(more, "{:?}, {:?}, {:?}, {:?}", self.stdout(rank), self.exits, self.failed, self.notices);
        }
    }
    fn input(&mut self, rank: Option<u32>, text: &str) {
        self.peer.send(&ToStep::Input { rank, bytes: ByteBuf::from(text.as_bytes().to_vec()) });
    }
}

/// Runs a shell script in each of `ranks` tasks.
fn tasks(ranks: u32, script: &str, change: impl FnOnce(&mut TaskProgram)) -> (Step, Srun) {
    greeted([7; 16], ranks, script, change)
}

/// As `tasks`, with an `srun` that answers with that cookie.
fn greeted(cookie: [u8; 16], ranks: u32, script: &str, change: impl FnOnce(&mut TaskProgram)) -> (Step, Srun) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("squall-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let argv = ["sh", "-c", script].map(|w| ByteBuf::from(w.as_bytes().to_vec())).to_vec();
    let step = Step::start(|dir| {
        let mut program = TaskProgram {
            commands: vec![(RankSet::All, argv)],
            env: ByteBuf::from(b"PATH=/usr/bin:/bin\0".to_vec()),
            work_dir: ByteBuf::from(dir.to_str().unwrap().as_bytes().to_vec()),
            umask: 0o022,
            client: ClientAddress::Abstract(name),
            cookie: [7; 16],
            ..TaskProgram::default()
        };
        change(&mut program);
        let mut launch = launch(Program::Tasks(Box::new(program)), dir);
        launch.layout.tasks = vec![ranks].into();
        (launch, String::new())
    });
    let (stream, _) = listener.accept().unwrap();
    let mut peer = Peer::new(stream);
    assert!(matches!(peer.receive(), Some(Hello { role: Role::Step, .. })));
    assert_eq!(peer.receive(), Some(FromStep::Hello { cookie: [7; 16], node_index: 0 }));
    peer.send(&ToStep::Hello { cookie });
    let (output, exits) = (BTreeMap::new(), BTreeMap::new());
    (step, Srun { peer, output, exits, failed: Vec::new(), notices: Vec::new() })
}

fn each_rank_has_its_output_and_exit() {
    let script = "echo $SLURM_PROCID of $SLURM_NTASKS; echo e$SLURM_LOCALID >&2; exit $SLURM_PROCID";
    let (mut step, mut srun) = tasks(3, script, |_| {});
    srun.until_done();
    for rank in 0..3 {
        assert_eq!(srun.stdout(rank), format!("{rank} of 3\n"));
        assert_eq!(srun.output[&(rank, true)], format!("e{rank}\n").as_bytes());
        assert_eq!(srun.exits[&rank], code(rank as u8));
    }
    assert_eq!(step.end().exit, code(2));
}

fn a_command_that_is_not_there_exits_2() {
    let nosuch = vec![ByteBuf::from(b"nosuchcmd".to_vec())];
    let (mut step, mut srun) = tasks(1, "", |p| p.commands = vec![(RankSet::All, nosuch)]);
    srun.until_done();
    assert_eq!(srun.failed, [(0, 2, "execve(): nosuchcmd: No such file or directory".to_owned())]);
    assert_eq!(step.end().exit, code(2));
}

fn input_goes_to_all_or_to_one_and_ends() {
    let (mut step, mut srun) = tasks(2, "cat; echo end", |_| {});
    srun.input(None, "all\n");
    srun.input(Some(1), "one\n");
    srun.input(None, "");
    srun.until_done();
    assert_eq!((srun.stdout(0), srun.stdout(1)), ("all\nend\n".into(), "all\none\nend\n".into()));
    let (mut other, mut srun) = tasks(2, "cat; echo end", |p| p.stdin = Stream::ClientRank(1));
    srun.input(None, "x\n");
    srun.input(None, "");
    srun.until_done();
    assert_eq!((srun.stdout(0), srun.stdout(1)), ("end\n".into(), "x\nend\n".into()));
    assert_eq!((step.end().exit, other.end().exit), (code(0), code(0)));
}

fn much_output_comes_whole_and_in_order_though_srun_reads_late() {
    let (mut step, mut srun) = tasks(2, "seq 1 400000; echo done > done$SLURM_PROCID", |_| {});
    // Nothing is read until the tasks stand still: they wait for us.
    let waits = |rank: u32| !step.dir.join(format!("done{rank}")).exists();
    std::thread::sleep(Duration::from_millis(300));
    assert!(waits(0) && waits(1), "nobody may run ahead of srun without bound");
    srun.until_done();
    let expected: String = (1..=400_000).flat_map(|n: u32| [n.to_string(), "\n".to_owned()]).collect();
    assert!(srun.stdout(0) == expected && srun.stdout(1) == expected);
    assert_eq!(step.end().exit, code(0));
}

fn output_files_by_rank_joined_or_thrown_away() {
    let (mut step, mut srun) = tasks(2, "echo o; echo e >&2", |p| {
        p.stdout = Stream::File("out-%t-%N".into());
        p.stderr = Stream::Joined;
    });
    srun.until_done();
    step.end();
    assert!(srun.output.is_empty());
    assert_eq!((step.text("out-0-n1"), step.text("out-1-n1")), ("o\ne\n".into(), "o\ne\n".into()));
}

fn rank_0_has_a_terminal_of_the_right_size() {
    let script = "tty >/dev/null && stty size && read line && echo got $line && stty size";
    let (mut step, mut srun) = tasks(1, script, |p| p.pty = Some((33, 99)));
    srun.until_output(0, "33 99\r\n");
    srun.peer.send(&ToStep::Resize(40, 120));
    srun.input(None, "hello\n");
    srun.until_done();
    assert!(srun.stdout(0).ends_with("got hello\r\n40 120\r\n"), "{:?}", srun.stdout(0));
    assert_eq!(step.end().exit, code(0));
}

fn a_vanished_srun_ends_the_step() {
    let (mut step, mut srun) = tasks(1, "echo $$; exec sleep 1000", |_| {});
    srun.until_output(0, "\n");
    let pid = srun.stdout(0).trim().to_owned();
    assert!(lives(&pid));
    drop(srun);
    assert_eq!(step.end().exit, signal(15));
    assert!(!lives(&pid));
}

fn a_failing_task_ends_the_others_if_so_asked() {
    let script = "[ $SLURM_PROCID = 1 ] && exit 5; exec sleep 1000";
    let (mut step, mut srun) = tasks(3, script, |p| p.kill_on_bad_exit = true);
    srun.until_done();
    assert_eq!(step.end().exit, code(5));
    assert_eq!((srun.exits[&0], srun.exits[&1]), (signal(15), code(5)));
}

fn a_signal_from_srun_reaches_children_too() {
    let (mut step, mut srun) = tasks(1, "sleep 1000 & echo up; wait", |_| {});
    srun.until_output(0, "up");
    srun.peer.send(&ToStep::Signal(2));
    srun.until_done();
    assert_eq!(step.end().exit, signal(2));
}

fn cve_2022_29502_who_does_not_know_the_cookie_gets_nothing() {
    let (mut step, mut srun) = greeted([8; 16], 1, "echo secret > secret", |_| {});
    assert_eq!(srun.peer.receive::<FromStep>(), None);
    step.daemon.wait().unwrap();
    assert!(matches!(step.result(), FromStepd::Failed { node_fault: false, .. }), "{:?}", step.result());
    assert!(!step.dir.join("secret").exists());
}
