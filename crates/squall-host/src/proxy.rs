//! Passes connections of this machine on to the controller that leads, which is on another machine.

use std::io;
use std::time::Duration;

use squall_model::encoding;
use squall_model::wire::client::Refusal;
use squall_model::wire::join::{VOUCHED, Vouched};
use squall_model::wire::{Hello, Proof, Role, Standby};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy};
use tokio::time::timeout;

use crate::hop::{Reader, Writer};
use crate::leader::{Controllers, Met};
use crate::link;

/// How long a command waits for a controller that leads, if there are several.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time within which a command must send its first request.
const FIRST_REQUEST_TIME: Duration = Duration::from_mins(1);

/// Serves a command that has sent the greeting `hello`: passes its requests on to the controller that leads, and vouches
/// for its user. It ends when another controller leads; the command then connects again. `greeted`: whether the command
/// has got a greeting already; otherwise it gets the controller's.
pub(crate) async fn command(
    controllers: &Controllers,
    (reader, writer): (&mut Reader, &mut Writer),
    hello: Hello,
    vouched: &Vouched,
    greeted: bool,
) -> io::Result<()> {
    let proof = Proof::Scheme(VOUCHED.to_owned(), encoding::to_vec(vouched));
    let asked = Hello { proof, ..hello.clone() };
    let (ours, met) = match controllers.call(&asked, PATIENCE).await {
        Ok(met) => (met.hello.clone(), Ok(met)),
        Err(e) if controllers.are_several() => (Hello::new(Role::Standby(Standby::default())), Err(e)),
        // The command sees the end of its connection, and tries again.
        Err(e) => return Err(e),
    };
    if !greeted {
        link::write(writer, &ours).await?;
    }
    match met {
        Ok(met) => carry(controllers, (reader, writer), met, FIRST_REQUEST_TIME).await,
        Err(e) => link::deny(reader, writer, Refusal::NoLeader(e.to_string())).await,
    }
}

/// Serves a node daemon of this machine that has sent the greeting `hello`: connects it to the controller that leads.
pub(crate) async fn node(
    controllers: &Controllers,
    (reader, writer): (&mut Reader, &mut Writer),
    hello: Hello,
) -> io::Result<()> {
    let met = controllers.call(&hello, PATIENCE).await?;
    link::write(writer, &met.hello).await?;
    carry(controllers, (reader, writer), met, Duration::MAX).await
}

/// Forwards in both directions until either side ends the connection, or another controller leads.
async fn carry(
    controllers: &Controllers,
    near: (&mut Reader, &mut Writer),
    mut met: Met,
    first_within: Duration,
) -> io::Result<()> {
    let term = met.term;
    tokio::select! {
        done = pass_on(near, (&mut met.reader, &mut met.writer), first_within) => done,
        () = controllers.moved(term) => Ok(()),
    }
}

/// Forwards between a command and the controller until either ends the connection. Err: the command sent no request in
/// `first_within`.
async fn pass_on(
    (reader, writer): (&mut (impl AsyncRead + Unpin), &mut (impl AsyncWrite + Unpin)),
    (from, to): (&mut (impl AsyncRead + Unpin), &mut (impl AsyncWrite + Unpin)),
    first_within: Duration,
) -> io::Result<()> {
    let asking = async {
        let mut first = [0];
        let asked = timeout(first_within, reader.read_exact(&mut first)).await;
        asked.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        to.write_all(&first).await?;
        copy(reader, to).await
    };
    // The end of either side ends both.
    tokio::select! {
        done = asking => done,
        done = copy(from, writer) => done,
    }
    .map(drop)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, split};

    use super::pass_on;

    /// Regression test of fault M1 in faults.md.
    #[test]
    fn m1_a_command_that_asks_nothing_is_ended() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (command, near) = duplex(64);
            let (controller, far) = duplex(64);
            let ((mut reader, mut writer), (mut from, mut to)) = (split(near), split(far));
            let idle = pass_on((&mut reader, &mut writer), (&mut from, &mut to), Duration::from_millis(20)).await;
            assert_eq!(idle.map_err(|e| e.kind()), Err(ErrorKind::TimedOut));
            // A command that has sent a request may wait for the answer as long as that takes.
            let (mut command, mut controller) = (command, controller);
            command.write_all(b"ask").await.unwrap();
            let passed = pass_on((&mut reader, &mut writer), (&mut from, &mut to), Duration::from_millis(20));
            let talk = async {
                let mut heard = [0; 3];
                controller.read_exact(&mut heard).await.unwrap();
                controller.write_all(b"told").await.unwrap();
                let mut told = [0; 4];
                command.read_exact(&mut told).await.unwrap();
                drop(command);
                (heard, told)
            };
            let (ended, said) = tokio::join!(passed, talk);
            assert_eq!((ended.is_ok(), said), (true, (*b"ask", *b"told")));
        });
    }
}
