"""All benchmarks, one after the other."""

from benchmarks import first_answers, flows, steps

if __name__ == "__main__":
    first_answers.main()
    flows.main()
    steps.main()
