"""Translation pairs in windows without padding."""

from acf.zoo.data.translation import TOKENS, translation_windows

END = 1


def test_windows_are_full_and_start_with_a_pair() -> None:
    source = [[f"s{number}"] * 9 for number in range(40)]
    target = [[f"t{number}"] * 12 for number in range(40)]
    inputs, labels = translation_windows(source, target)
    assert inputs.shape == (5, 2, TOKENS)
    assert labels.shape == (5, TOKENS)
    # Seven sentences of ten tokens fill the source, five of thirteen the target: the next window starts at the eighth.
    starts = [int(window[0, 0]) for window in inputs]
    assert len(set(starts)) == 5
    assert int(inputs[0, 0, 9]) == END


def test_the_target_is_the_label_shifted_by_one() -> None:
    words = [["a", "b", "c"]] * 40
    inputs, labels = translation_windows(words, words)
    assert inputs[0, 1, 1:].equal(labels[0, :-1])
    assert int(inputs[0, 1, 0]) == END


def test_too_few_sentences_give_no_window() -> None:
    inputs, labels = translation_windows([["a"]], [["b"]])
    assert (len(inputs), len(labels)) == (0, 0)
