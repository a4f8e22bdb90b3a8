//! Whatever is written, however it is cut into batches, and wherever the ledger is dropped: it says
//! what a plain fold of the lines says.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Decision {
        sandbox: u8,
        host: u8,
        verdict: u8,
        opens: bool,
    },
    /// Of one of the decisions so far, known, repeated or never permitted.
    Close {
        which: usize,
        up: u32,
    },
    Restart,
    Damage,
    Rotate,
    /// Folds what there is, in a ledger that is opened for it and dropped.
    Fold,
}

fn step() -> impl Strategy<Value = Step> {
    let decision = (0..3_u8, 0..4_u8, 0..3_u8, any::<bool>());
    prop_oneof![
        8 => decision.prop_map(|(sandbox, host, verdict, opens)| Step::Decision { sandbox, host, verdict, opens }),
        6 => (0..40_usize, any::<u32>()).prop_map(|(which, up)| Step::Close { which, up }),
        1 => Just(Step::Restart),
        1 => Just(Step::Damage),
        1 => Just(Step::Rotate),
        4 => Just(Step::Fold),
    ]
}

/// Requests, verdicts and bytes of each row.
type Plain = BTreeMap<(String, String), (u64, [u64; 3], u64)>;

#[derive(Default)]
struct Naive {
    rows: Plain,
    open: HashMap<String, (String, String)>,
    unmatched: u64,
    damaged: u64,
}

fn shown(folded: &Folded) -> Plain {
    let row = |row: &DomainRow| {
        let counts = &row.counts;
        let verdicts = [counts.allow, counts.deny, counts.would_deny];
        ((row.sandbox.clone(), row.host.clone()), (counts.requests, verdicts, counts.bytes_up))
    };
    folded.rows.iter().map(row).collect()
}

/// Writes a step and folds it plainly.
fn write(place: &mut Place, naive: &mut Naive, ids: &mut Vec<String>, rotations: &mut u32, step: &Step) {
    match step {
        Step::Decision { sandbox, host, verdict, opens } => {
            let (sandbox, host) = (format!("s{sandbox}"), format!("h{host}"));
            let id = format!("{:013}", ids.len());
            let word = ["allow", "deny", "would_deny"][usize::from(*verdict)];
            let opens = *opens && word != "deny";
            place.record(&decision(&id, &sandbox, &host, word, "r", if opens { "null" } else { "502" }));
            let row = naive.rows.entry((sandbox.clone(), host.clone())).or_default();
            row.0 += 1;
            row.1[usize::from(*verdict)] += 1;
            if opens {
                naive.open.insert(id.clone(), (sandbox, host));
            }
            ids.push(id);
        }
        Step::Close { which, up } => {
            let id = ids.get(*which).cloned().unwrap_or_else(|| "never".to_owned());
            place.close(&id, u64::from(*up), 1);
            match naive.open.remove(&id) {
                Some(key) => naive.rows.get_mut(&key).unwrap().2 += u64::from(*up),
                None => naive.unmatched += 1,
            }
        }
        Step::Restart => {
            place.record("\"event\":\"start\"");
            naive.open.clear();
        }
        Step::Damage => {
            place.append("{\"seq\":3,\"ts\n");
            naive.damaged += 1;
        }
        Step::Rotate => {
            // An empty file has no beginning by which it could be found.
            if fs::metadata(place.file()).is_ok_and(|meta| meta.len() > 0) {
                *rotations += 1;
                fs::rename(place.file(), place.dir.path().join(format!("audit.ndjson.{rotations}"))).unwrap();
            }
        }
        Step::Fold => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn it_says_what_the_lines_say(steps in proptest::collection::vec(step(), 1..120)) {
        let mut place = Place::new();
        let (mut naive, mut ids, mut rotations) = (Naive::default(), Vec::new(), 0);
        // The ledger begins with the file of its first fold, so there must have been one.
        place.record("\"event\":\"start\"");
        place.fold();
        for step in &steps {
            write(&mut place, &mut naive, &mut ids, &mut rotations, step);
            if matches!(step, Step::Rotate) {
                place.record("\"event\":\"reload\",\"ok\":true");
            }
            if matches!(step, Step::Fold) {
                place.fold();
            }
        }
        let folded = place.fold();
        prop_assert_eq!(shown(&folded), naive.rows);
        let expected =
            Notes { unmatched_closes: naive.unmatched, damaged_lines: naive.damaged, ..Notes::default() };
        prop_assert_eq!(folded.notes, expected);
        for (id, row) in &folded.sandboxes {
            let of = folded.rows.iter().filter(|r| r.sandbox == *id);
            let sums = of.clone().map(|r| (r.counts.requests, r.counts.bytes_up));
            let sums = sums.fold((0, 0), |sum, row| (sum.0 + row.0, sum.1 + row.1));
            prop_assert_eq!((row.domains, row.counts.requests, row.counts.bytes_up),
                (of.count() as u64, sums.0, sums.1));
        }
    }
}
