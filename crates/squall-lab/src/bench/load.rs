//! Load on this machine while a benchmark measures.

use std::hint::black_box;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::spawn::cores;

/// Bytes of one write by the network load.
const WRITE_BYTES: usize = 64 << 10;

/// Kind of load on this machine while a benchmark measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    None,
    /// A computing thread on each core.
    Cpu,
    /// A stream of data over the loopback device for each core.
    Network,
}

impl Load {
    pub(super) const ALL: [Self; 3] = [Self::None, Self::Cpu, Self::Network];

    /// Returns the load's name on the command line.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "unloaded",
            Self::Cpu => "cpu",
            Self::Network => "network",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|load| load.name() == name)
    }

    /// Starts the load, which lasts until the returned value is dropped.
    pub(super) fn start(self) -> io::Result<Burden> {
        let mut burden = Burden { stop: Arc::default(), threads: Vec::new() };
        for _ in 0..cores() {
            match self {
                Self::None => {}
                Self::Cpu => burden.compute(),
                Self::Network => burden.stream()?,
            }
        }
        Ok(burden)
    }
}

/// Background load of CPUs or network while something is measured. Dropping it ends the load.
#[derive(Debug)]
pub(super) struct Burden {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Burden {
    fn compute(&mut self) {
        let stop = Arc::clone(&self.stop);
        self.threads.push(std::thread::spawn(move || {
            let mut x = 1_u64;
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..10_000 {
                    x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
                }
            }
        }));
    }

    fn stream(&mut self) -> io::Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut to = TcpStream::connect(listener.local_addr()?)?;
        let (mut from, _) = listener.accept()?;
        let stop = Arc::clone(&self.stop);
        self.threads.push(std::thread::spawn(move || {
            let bytes = vec![0; WRITE_BYTES];
            while !stop.load(Ordering::Relaxed) && to.write_all(&bytes).is_ok() {}
            // The reader then ends, too.
            let _ = to.shutdown(Shutdown::Both);
        }));
        self.threads.push(std::thread::spawn(move || {
            let mut bytes = vec![0; WRITE_BYTES];
            while from.read(&mut bytes).is_ok_and(|count| count > 0) {}
        }));
        Ok(())
    }
}

impl Drop for Burden {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The thread has no result.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Load;

    #[test]
    fn every_load_has_a_name_and_ends() {
        for load in Load::ALL {
            assert_eq!(Load::named(load.name()), Some(load));
            drop(load.start().unwrap());
        }
        assert_eq!(Load::named("other"), None);
    }
}
