package policy

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAdaptersOfOtherModules(t *testing.T) {
	_, err := targetsOf([]string{"base_model.model.lm_head.lora_A.weight"})
	require.ErrorContains(t, err, "adapters of lm_head are not supported")
}
