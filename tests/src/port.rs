//! Ports for servers that are started as processes and cannot tell which one they took.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Result, bail};

/// Below the ports that the system hands out to connections and to port 0 (from 32768 on): what is free stays free for
/// the seconds that a server takes to start, whatever else runs.
const FIRST: u16 = 10_000;
/// Ports of one test; each has a process of its own.
const OWN: u16 = 20;
/// Processes, by their ids, that do not get in each other's way.
const PROCESSES: u32 = 1100;

/// An address on loopback that is free and will be.
///
/// # Errors
/// All ports of this process are taken.
pub fn free() -> Result<SocketAddr> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let own = u16::try_from(std::process::id() % PROCESSES)? * OWN + FIRST;
    for _ in 0..OWN {
        let port = own + NEXT.fetch_add(1, Ordering::Relaxed) % OWN;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no free port from {own} on")
}
