package rewards

import "github.com/agentfly/agentfly/trajectory"

// TaskChecker is a Reward that can say, before anything is sampled, that a task lacks what its Score would read of it.
type TaskChecker interface {
	CheckTask(task trajectory.Task) error
}

// CheckTask is the error that a reward would end every trajectory of the task with, because a field is missing or of another form; nil: there
// is none, or the reward cannot tell.
func CheckTask(r Reward, task trajectory.Task) error {
	if c, ok := r.(TaskChecker); ok {
		return c.CheckTask(task)
	}
	return nil
}

// needing is a reward that reads fields of the task.
type needing struct {
	Reward
	check func(task trajectory.Task) error
}

func (n needing) CheckTask(task trajectory.Task) error { return n.check(task) }

// needs is the reward with what its tasks must have.
func needs(check func(task trajectory.Task) error, r Reward) Reward { return needing{r, check} }

// needsAnswers is the reward with a field that holds a right answer, or a list of them.
func needsAnswers(name string, r Reward) Reward {
	return needs(func(task trajectory.Task) error {
		_, err := rightAnswers(task, name)
		return err
	}, r)
}

// needsOf is a reward that scores with others: it needs what each of them does.
func needsOf(r Reward, of ...Reward) Reward {
	return needs(func(task trajectory.Task) error { return firstWrong(task, of) }, r)
}

func firstWrong(task trajectory.Task, of []Reward) error {
	for _, r := range of {
		if err := CheckTask(r, task); err != nil {
			return err
		}
	}
	return nil
}

func rewardsOf(terms []Weighted) []Reward {
	out := make([]Reward, len(terms))
	for i, t := range terms {
		out[i] = t.Reward
	}
	return out
}

// CheckTask implements TaskChecker.
func (s *sum) CheckTask(task trajectory.Task) error { return firstWrong(task, rewardsOf(s.terms)) }

// CheckTask implements TaskChecker.
func (a alias) CheckTask(task trajectory.Task) error { return CheckTask(a.Reward, task) }

// CheckTask implements TaskChecker: a field of the task for each argument that has no default.
func (r pythonReward) CheckTask(task trajectory.Task) error {
	_, err := r.match(Input{Task: task, Trajectory: &trajectory.Trajectory{}})
	return err
}

// CheckTask implements TaskChecker: the fields that the prompt names.
func (j *judge) CheckTask(task trajectory.Task) error {
	_, err := fill(j.Prompt, func(name string) (string, error) {
		return promptField(Input{Task: task, Trajectory: &trajectory.Trajectory{}}, name)
	})
	return err
}
