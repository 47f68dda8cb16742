//! How the nodes of a Redis Cluster get to know each other.

use std::fmt::Write;
use std::fs;

use crate::Outcome;
use crate::redis::{MASTERS, Node, Ports};

const SLOTS: usize = 16384;

/// The name of a node in its cluster.
pub fn id(at: usize) -> String {
    format!("{at:040x}")
}

/// Writes down for each node who the others are, as if they had met before. Masters come first, then their replicas.
pub(crate) fn introduce(nodes: &[Node]) -> Outcome<()> {
    for (me, node) in nodes.iter().enumerate() {
        let mut known = String::new();
        for (at, node) in nodes.iter().enumerate() {
            let Ports::Cluster(port, bus) = node.ports else { return Err("not a node of a cluster".into()) };
            let (myself, master) = (if at == me { "myself," } else { "" }, at % MASTERS);
            let (kind, slots) = if at < MASTERS {
                let (from, to) = (SLOTS * master / MASTERS, SLOTS * (master + 1) / MASTERS - 1);
                ("master -".to_owned(), format!(" {from}-{to}"))
            } else {
                (format!("slave {}", id(master)), String::new())
            };
            let epoch = master + 1;
            writeln!(known, "{} 127.0.0.1:{port}@{bus} {myself}{kind} 0 0 {epoch} connected{slots}", id(at))?;
        }
        writeln!(known, "vars currentEpoch {MASTERS} lastVoteEpoch 0")?;
        fs::write(node.file("nodes.conf"), known)?;
    }
    Ok(())
}
