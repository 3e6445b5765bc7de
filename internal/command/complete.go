package command

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/top"
)

const (
	completeWithin = 2 * time.Second // the shell waits meanwhile
	completeMost   = 200             // more words help nobody
)

// flagWords are the words that a flag takes, by its name.
var flagWords = map[string][]string{
	"status": {"active", "paused", "cancelled", "completed"}, "overflow": {"lane", "block"},
	"on-store-failure": {"closed", "local-share", "open"}, "mode": {"strict", "shadow", "eventual"}, "spend": {"greedy", "even"},
	"sort": top.OrderNames(),
}

// ids lists ids as the database or a console has them at this moment.
type ids func(ctx context.Context) ([]string, error)

// complete makes the shell complete the ids of campaigns and quotas, and the words that flags take. Destinations are too many, and sinks
// are in the configuration.
func (c *cli) complete(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		c.complete(sub)
	}
	if about := c.idsOf(cmd); about != nil {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completions(cmd, about, begun)
		}
	}
	ofFlags := map[string]ids{"campaign": c.campaignIDs, "quota": c.quotaIDs, "of-quota": c.quotaIDs}
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		words, list := flagWords[f.Name], ofFlags[f.Name]
		if words == nil && list == nil {
			return
		}
		// It fails only for a flag that the command does not have.
		_ = cmd.RegisterFlagCompletionFunc(f.Name, func(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if words != nil {
				return words, cobra.ShellCompDirectiveNoFileComp
			}
			return completions(cmd, list, begun)
		})
	})
}

// idsOf is what the argument of a command is an id of; nil if it is no such one, or one that is not there yet.
func (c *cli) idsOf(cmd *cobra.Command) ids {
	path := cmd.CommandPath() + " "
	switch {
	case !strings.Contains(cmd.Use, " ID") || cmd.Name() == "create":
	case strings.HasPrefix(path, "pacer campaign "), path == "pacer explain ":
		return c.campaignIDs
	case strings.HasPrefix(path, "pacer quota "):
		return c.quotaIDs
	}
	return nil
}

// completions are the ids that begin so; none if they cannot be asked for within the time.
func completions(cmd *cobra.Command, list ids, begun string) (found []cobra.Completion, how cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	all, err := list(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	for _, id := range all {
		if strings.HasPrefix(id, begun) && len(found) < completeMost {
			found = append(found, id)
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

func (c *cli) campaignIDs(ctx context.Context) ([]string, error) { return c.listIDs(ctx, "campaigns") }

func (c *cli) quotaIDs(ctx context.Context) ([]string, error) { return c.listIDs(ctx, "quotas") }

func (c *cli) listIDs(ctx context.Context, of string) (list []string, err error) {
	api, err := c.client(config.NeedPostgres)
	if err != nil {
		return nil, err
	}
	err = pages(ctx, api, of, url.Values{"fields": {"id"}}, func(one *struct{ ID string }) { list = append(list, one.ID) })
	return list, err
}
