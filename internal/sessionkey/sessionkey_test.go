package sessionkey_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/internal/sessionkey"
)

// A key follows from its secret and its session, and its holder is read from it.
func TestKeys(t *testing.T) {
	secret := sessionkey.NewSecret()
	key := sessionkey.Of(secret, "run/train-0-0-0")
	require.Equal(t, key, sessionkey.Of(secret, "run/train-0-0-0"))
	require.NotEqual(t, key, sessionkey.Of(secret, "run/train-0-0-1"))
	require.NotEqual(t, key, sessionkey.Of(sessionkey.NewSecret(), "run/train-0-0-0"))
	for of, want := range map[string][2]string{
		key:                              {key, ""},
		sessionkey.ForHolder(key, "AB"):  {key, "AB"},
		"of.another.service":             {"of.another.service", ""},
		"":                               {"", ""},
		sessionkey.ForHolder("a.b", "c"): {"a.b.c", ""},
	} {
		session, holder := sessionkey.Split(of)
		require.Equal(t, want, [2]string{session, holder})
	}
}
