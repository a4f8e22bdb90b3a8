//! Files that others rename, cut, delete or restore.

use super::*;

#[test]
fn a_renamed_file_is_finished_first() {
    let mut place = Place::new();
    place.decision("a", "box", "one.test");
    place.fold();
    place.decision("b", "box", "two.test");
    fs::rename(place.file(), place.dir.path().join("audit.ndjson.1")).unwrap();
    place.decision("c", "box", "three.test");
    let folded = place.fold();
    let expected =
        [("box", "one.test", 1, 0, 0), ("box", "three.test", 1, 0, 0), ("box", "two.test", 1, 0, 0)];
    assert_eq!(folded.short(), expected);
    assert_eq!(folded.notes, Notes::default());
}

#[test]
fn several_rotations_in_between_are_read_in_their_order() {
    let mut place = Place::new();
    place.decision("a", "box", "one.test");
    place.fold();
    for turn in 0..4 {
        place.decision(&format!("b{turn}"), "box", "one.test");
        let names: Vec<_> = (0..=turn).rev().collect();
        for number in names {
            let from = if number == 0 {
                place.file()
            } else {
                place.dir.path().join(format!("audit.ndjson.{number}"))
            };
            fs::rename(from, place.dir.path().join(format!("audit.ndjson.{}", number + 1))).unwrap();
        }
    }
    place.close("b0", 1, 1);
    place.close("b3", 2, 2);
    let folded = place.fold();
    assert_eq!(folded.short(), [("box", "one.test", 5, 3, 3)]);
    assert_eq!(folded.notes, Notes::default());
}

#[test]
fn a_file_that_is_gone_is_a_gap() {
    let mut place = Place::new();
    place.decision("a", "box", "one.test");
    place.fold();
    place.decision("b", "box", "two.test");
    fs::rename(place.file(), place.dir.path().join("elsewhere")).unwrap();
    fs::remove_file(place.dir.path().join("elsewhere")).unwrap();
    place.decision("c", "box", "three.test");
    let folded = place.fold();
    assert_eq!(folded.short(), [("box", "one.test", 1, 0, 0), ("box", "three.test", 1, 0, 0)]);
    assert_eq!(folded.notes, Notes { gaps: 1, missing_records: 1, ..Notes::default() });
}

#[test]
fn another_file_with_the_same_inode_is_another_file() {
    let mut place = Place::new();
    place.decision("a", "box", "one.test");
    place.fold();
    // Rewriting in place keeps the inode, as a file system may by chance.
    let text: String = (2..=9)
        .map(|n| line(n, n, &decision(&format!("n{n}"), "box", "new.test", "allow", "allowed", "null")))
        .collect();
    fs::write(place.file(), text).unwrap();
    let folded = place.fold();
    assert_eq!(folded.short(), [("box", "new.test", 8, 0, 0), ("box", "one.test", 1, 0, 0)]);
}

#[test]
fn a_file_that_is_cut_is_read_anew() {
    let mut place = Place::new();
    place.decision("a", "box", "one.test");
    let ledger = place.ledger();
    ledger.catch_up().unwrap();
    drop(ledger);
    OpenOptions::new().write(true).open(place.file()).unwrap().set_len(0).unwrap();
    assert_eq!(place.fold().short(), [("box", "one.test", 1, 0, 0)]);
    place.close("a", 1, 2);
    let folded = place.fold();
    assert_eq!(folded.short(), [("box", "one.test", 1, 1, 2)]);
    assert_eq!(folded.notes.missing_records, 0);
}

#[test]
fn a_file_that_lost_its_end_is_not_counted_twice() {
    let mut place = Place::new();
    place.decision("a", "box", "one.test");
    let length = fs::metadata(place.file()).unwrap().len();
    place.decision("b", "box", "one.test");
    place.fold();
    // As after a crash of the machine that lost what the system had not written yet.
    OpenOptions::new().write(true).open(place.file()).unwrap().set_len(length).unwrap();
    let folded = place.fold();
    assert_eq!(folded.short(), [("box", "one.test", 2, 0, 0)]);
    assert_eq!(folded.notes.gaps, 1);
    place.seq = 0;
    place.record("\"event\":\"start\"");
    place.decision("c", "box", "one.test");
    assert_eq!(place.fold().short(), [("box", "one.test", 3, 0, 0)]);
}

#[test]
fn old_files_from_before_the_ledger_are_left_alone() {
    let mut place = Place::new();
    place.decision("a", "box", "old.test");
    fs::rename(place.file(), place.dir.path().join("audit.ndjson.1")).unwrap();
    place.decision("b", "box", "one.test");
    assert_eq!(place.fold().short(), [("box", "one.test", 1, 0, 0)]);
}

#[test]
fn no_file_yet_is_nothing_to_fold() {
    let mut place = Place::new();
    assert_eq!(place.fold().short(), []);
    fs::write(place.file(), "").unwrap();
    assert_eq!(place.fold().short(), []);
    place.decision("a", "box", "one.test");
    assert_eq!(place.fold().short(), [("box", "one.test", 1, 0, 0)]);
}

#[test]
fn a_file_is_known_again_by_its_beginning() {
    let mut place = Place::new();
    place.decision("a", "box", "one.test");
    place.fold();
    // As when a volume is restored or mounted anew: the same bytes, another inode.
    let copy = place.dir.path().join("copy");
    fs::copy(place.file(), &copy).unwrap();
    fs::rename(copy, place.file()).unwrap();
    place.decision("b", "box", "one.test");
    let folded = place.fold();
    assert_eq!(folded.short(), [("box", "one.test", 2, 0, 0)]);
    assert_eq!(folded.notes, Notes::default());
}

#[test]
fn a_copy_from_before_a_cut_is_finished_first() {
    let mut place = Place::new();
    place.decision("a", "box", "one.test");
    place.fold();
    place.decision("b", "box", "two.test");
    fs::copy(place.file(), place.dir.path().join("audit.ndjson.1")).unwrap();
    OpenOptions::new().write(true).open(place.file()).unwrap().set_len(0).unwrap();
    place.decision("c", "box", "one.test");
    let folded = place.fold();
    assert_eq!(folded.short(), [("box", "one.test", 2, 0, 0), ("box", "two.test", 1, 0, 0)]);
    assert_eq!(folded.notes, Notes::default());
}

#[test]
fn a_gap_is_counted_once_however_long_it_lasts() {
    let mut place = Place::new();
    place.decision("a", "box", "one.test");
    place.fold();
    fs::remove_file(place.file()).unwrap();
    let stored = place.ledger().shared.store.position().unwrap();
    let mut follower = follow::Follower::new(place.file(), stored);
    let gaps = |follower: &mut follow::Follower| follower.read(Reach::now(&place.file())).unwrap().notes.gaps;
    assert_eq!([gaps(&mut follower), gaps(&mut follower)], [1, 0]);
    place.append(&line(2, 2, &decision("b", "box", "two.test", "allow", "allowed", "null")));
    let read = follower.read(Reach::now(&place.file())).unwrap();
    assert_eq!((read.records.len(), read.notes), (1, Notes::default()));
}
