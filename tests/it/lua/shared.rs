//! What several scripts need stands in each of them, as a block from `-- shared: its name` to the next empty line. This
//! checks that the copies are equal, byte by byte.

use std::collections::BTreeMap;

use zticket::store::redis::scripts::SOURCES;

use super::headers::body;

const MARK: &str = "-- shared: ";

/// Every block, and a piece of code that only this block has: a script with the piece must have the whole block.
const BLOCKS: [(&str, &str); 10] = [
    ("readiness", "'UNREADY'"),
    ("clock", "'TIME'"),
    ("life", "master_replid"),
    ("slice", "slow_ttl_ms or queue_ttl_ms"),
    ("silence", "last_asked or turned"),
    ("run of bits", r"'\255'"),
    ("leave the line", "'SETBIT', LINE, at, 0"),
    ("leave the gap", "return at >= 0 and place >= gap_from"),
    ("free a seat", "'ZREM', HOLD_ENDS, seat)\nend"),
    ("list of held seats", "table.concat(kept, ' ')"),
];

/// The blocks of a body by name, and the body without them.
fn split(body: &str) -> (Vec<(&str, &str)>, String) {
    let (mut blocks, mut rest) = (Vec::new(), String::new());
    for part in body.split("\n\n") {
        match part.find(MARK) {
            Some(at) => {
                let (before, block) = part.split_at(at);
                rest.push_str(before);
                blocks.push((block[MARK.len()..].lines().next().unwrap_or_default(), block));
            }
            None => rest.push_str(part),
        }
        rest.push_str("\n\n");
    }
    (blocks, rest)
}

/// The first line in which two copies differ.
fn difference(copy: &str, other: &str) -> String {
    let mut pairs = copy.lines().map(Some).chain([None]).zip(other.lines().map(Some).chain([None]));
    let (copy, other) = pairs.find(|(copy, other)| copy != other).unwrap_or_default();
    format!("{:?} instead of {:?}", copy.unwrap_or("(end)"), other.unwrap_or("(end)"))
}

/// What is wrong with the shared blocks of these scripts, each a name and a body.
fn wrong(scripts: &[(&str, &str)]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut copies: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for (script, body) in scripts {
        let (blocks, rest) = split(body);
        for (name, block) in blocks {
            let known = copies.entry(name).or_default();
            if known.last().is_some_and(|(last, _)| last == script) {
                wrong.push(format!("{script}: has the shared block `{name}` twice"));
            }
            if block.contains("function") && !block.ends_with("\nend") {
                wrong.push(format!("{script}: an empty line cuts the shared block `{name}`"));
            }
            known.push((script, block));
        }
        for (name, piece) in BLOCKS {
            if rest.contains(piece) {
                wrong.push(format!("{script}: has {piece:?} outside of the shared block `{name}`"));
            }
        }
    }
    for (name, copies) in copies {
        if !BLOCKS.iter().any(|(known, _)| *known == name) {
            wrong.push(format!("{}: the shared block `{name}` is unknown to this test", copies[0].0));
        }
        // The text of most scripts is the right one; of two equally common ones, the first.
        let votes = |text: &str| copies.iter().filter(|(_, copy)| *copy == text).count();
        let most = copies.iter().map(|(_, copy)| votes(copy)).max();
        let (model, right) = *copies.iter().find(|(_, copy)| Some(votes(copy)) == most).unwrap_or(&copies[0]);
        for (script, copy) in copies.iter().filter(|(_, copy)| *copy != right) {
            let difference = difference(copy, right);
            wrong.push(format!("{script}: the shared block `{name}` differs from that of {model}: {difference}"));
        }
    }
    wrong
}

fn scripts() -> Vec<(&'static str, &'static str)> {
    SOURCES.iter().map(|source| (source.name, body(source))).collect()
}

/// The scripts that have a block.
fn owners(name: &str) -> Vec<&'static str> {
    let has = |body: &str| split(body).0.iter().any(|(block, _)| *block == name);
    let mut owners: Vec<&str> = scripts().iter().filter(|(_, body)| has(body)).map(|(script, _)| *script).collect();
    owners.sort_unstable();
    owners
}

#[test]
fn shared_blocks_are_the_same_in_every_script() {
    let wrong = wrong(&scripts());
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn every_shared_block_is_used_and_every_event_script_has_the_prelude() {
    let all = scripts();
    for (name, piece) in BLOCKS {
        assert!(owners(name).len() > 1, "`{name}` is shared by {:?}", owners(name));
        let inside = |body: &str| split(body).0.iter().any(|(block, text)| *block == name && text.contains(piece));
        assert!(all.iter().any(|(_, body)| inside(body)), "{piece:?} is no longer a piece of `{name}`");
    }
    let mut event: Vec<&str> = all
        .iter()
        .map(|(script, _)| *script)
        .filter(|script| !matches!(*script, "5_event_forget" | "event_read" | "ranking_set"))
        .collect();
    event.sort_unstable();
    let but = |missing: &str| event.iter().copied().filter(|script| *script != missing).collect::<Vec<_>>();
    assert_eq!(owners("readiness"), but("5_event_restore"));
    assert_eq!(owners("clock"), event);
}

#[test]
fn one_more_space_in_any_copy_of_any_block_is_found() {
    for (name, _) in BLOCKS {
        for owner in owners(name) {
            let mut planted = String::new();
            let mut all = scripts();
            let text = &mut all.iter_mut().find(|(script, _)| *script == owner).unwrap().1;
            let (_, block) = *split(text).0.iter().find(|(block, _)| *block == name).unwrap();
            let (before, after) = block.rsplit_once(' ').unwrap();
            planted.push_str(&text.replace(block, &format!("{before}  {after}")));
            *text = &planted;
            let wrong = wrong(&all);
            assert_eq!(wrong.len(), 1, "{owner}: {wrong:#?}");
            assert!(wrong[0].contains(&format!("the shared block `{name}` differs from that of ")), "{wrong:#?}");
            assert!(wrong[0].contains(owner), "{wrong:#?}");
        }
    }
}

#[test]
fn the_copy_that_is_unlike_the_others_is_named_with_its_line() {
    let right = "-- shared: clock\nlocal seconds = redis.call('TIME')\nlocal now = seconds + skew\n\nreturn now\n";
    let other = right.replace("+ skew", "- skew");
    assert_eq!(
        wrong(&[("1_first", &other), ("2_second", right), ("3_third", right)]),
        ["1_first: the shared block `clock` differs from that of 2_second: \"local now = seconds - skew\" instead of \
          \"local now = seconds + skew\""]
    );
    let longer = right.replace("\n\n", "\nlocal more = 1\n\n");
    assert_eq!(
        wrong(&[("1_first", right), ("2_second", right), ("3_third", &longer)]),
        ["3_third: the shared block `clock` differs from that of 1_first: \"local more = 1\" instead of \"(end)\""]
    );
}

#[test]
fn a_block_that_is_missing_doubled_cut_or_unknown_is_found() {
    let found = |body: &str| wrong(&[("script", body)]);
    assert_eq!(
        found("local time = redis.call('TIME')\n"),
        ["script: has \"'TIME'\" outside of the shared block `clock`"]
    );
    assert_eq!(
        found("-- shared: clock\nredis.call('TIME')\n\n-- shared: clock\nredis.call('TIME')\n\nreturn\n"),
        ["script: has the shared block `clock` twice"]
    );
    assert_eq!(
        found("-- shared: free a seat\nlocal function free()\n  one()\n\n  two()\nend\n"),
        ["script: an empty line cuts the shared block `free a seat`"]
    );
    assert_eq!(found("-- shared: cake\neat()\n\n"), ["script: the shared block `cake` is unknown to this test"]);
}
