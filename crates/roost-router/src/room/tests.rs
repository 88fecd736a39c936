use super::bootstrap_room;
use crate::fixtures::{array, load, small};

#[test]
fn rooms_are_those_of_the_formula() {
    let vectors = load("routing/bootstrap_room.json");
    for vector in array(&vectors["vectors"]) {
        let number = |field: &str| vector[field].as_str().unwrap().parse::<u64>().unwrap();
        let room = bootstrap_room(number("draw"), small(&vector["dp_rank"]), small(&vector["dp_size"]));
        assert_eq!(room, number("room"), "{vector}");
    }
}

#[test]
fn any_draw_fits_a_signed_integer_and_names_the_rank() {
    for draw in [0, 1, u64::MAX, u64::MAX / 2, 1 << 63] {
        let room = bootstrap_room(draw, 3, 8);
        assert!(i64::try_from(room).is_ok());
        assert_eq!(room % 8, 3);
        assert!(i64::try_from(bootstrap_room(draw, 0, 0)).is_ok());
    }
}
