package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/framebridge/framebridge/internal/hostclock"
	"github.com/framebridge/framebridge/internal/input"
	"github.com/framebridge/framebridge/ledger"
)

func newLedger() *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use:   "ledger",
		Short: "The append-only record of what was measured, with proofs",
		Long: `The ledger of a root names every sealed session that capture and import made there, by the SHA-256 of its manifest, which
names the rest. Each entry is a leaf of a Merkle tree, and each append ends with a signed checkpoint of the whole. Whoever keeps
a checkpoint elsewhere can prove later that nothing before it was changed (ledger verify --against), and a third party can check
one entry with the public key alone (ledger prove, verify-proof).

The key that signs is made on first use. One that is kept elsewhere is given to every command that appends (capture, import,
recover and lab27 run too) by $` + keyVariable + `: the name of a file that holds it.`,
	}
	cmd.PersistentFlags().StringVar(&root, "root", "", rootHelp)
	dir := func() (string, error) {
		r, err := sessionRoot(root)
		return ledger.Dir(r), err
	}
	cmd.AddCommand(newLedgerInit(dir), newLedgerNote(dir), newLedgerLog(dir), newLedgerShow(dir), newLedgerVerify(dir), newLedgerProve(dir), newLedgerCheckpoint(dir))
	return cmd
}

// lockPatience is how long a command waits for another one that is writing: an append takes milliseconds.
const lockPatience = 10 * time.Second

// keyVariable names the file with the private key of the ledger, for every command that appends to one.
const keyVariable = "FRAMEBRIDGE_LEDGER_KEY"

// ledgerKey is the key to sign with: that in the file that the flag --key names, else the environment, else nil, for the ledger's own. A
// command reads it once, and before it does anything else: a pipe tells it no second time, and may have to be waited for.
func ledgerKey(ctx context.Context, keyFlag string) (*ledger.Key, error) {
	keyFile, from := keyFlag, "--key"
	if keyFile == "" {
		keyFile, from = os.Getenv(keyVariable), "$"+keyVariable
	}
	if keyFile == "" {
		return nil, nil
	}
	text, err := readSmall(ctx, keyFile, maxSmallBytes)
	if err != nil {
		return nil, unreadable(fmt.Errorf("%s: %w", from, err))
	}
	key, err := ledger.ParseKey(string(text))
	if err != nil {
		return nil, fail(exitUsage, "%s %s: %w", from, keyFile, err)
	}
	return key, nil
}

// withWriter opens the ledger for appending, waiting for another writer to finish.
func withWriter(ctx context.Context, dir string, key *ledger.Key, append func(*ledger.Writer) error) error {
	options := ledger.Options{Tool: tool, SourceDigest: sourceDigest, Key: key}
	for deadline := time.Now().Add(lockPatience); ; {
		options.WallNs, options.MonotonicNs = time.Now().UnixNano(), hostclock.NowNs()
		w, recovery, err := ledger.OpenWriter(dir, options)
		var held *ledger.HeldError
		if errors.As(err, &held) && time.Now().Before(deadline) {
			select {
			case <-time.After(20 * time.Millisecond):
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err != nil {
			return fail(exitFailed, "%w", err)
		}
		if recovery != nil && recovery.RolledForward {
			fmt.Fprintln(stderr, "note: the last append was interrupted; its entry was whole and is finished now")
		}
		if recovery != nil {
			for _, s := range recovery.SetAside {
				fmt.Fprintf(stderr, "note: %d bytes at the end of %s, at byte %d, were torn and are set aside in the file torn\n", len(s.Bytes), s.File, s.Offset)
			}
		}
		err = append(w)
		return errors.Join(err, w.Close())
	}
}

func newEntry(kind ledger.Kind, evidence ledger.Evidence, body any) (ledger.Entry, error) {
	text, err := json.Marshal(body)
	return ledger.Entry{Kind: kind, WallNs: time.Now().UnixNano(), MonotonicNs: hostclock.NowNs(), Evidence: evidence, Body: text}, err
}

// recordSession puts a sealed session into the ledger of its root, with mayBeThere unless an entry names it already.
func recordSession(ctx context.Context, root, dir string, key *ledger.Key, mayBeThere bool) error {
	e, err := ledger.SessionEntry(root, dir)
	if err != nil {
		return fail(exitFailed, "%w", err)
	}
	e.WallNs, e.MonotonicNs = time.Now().UnixNano(), hostclock.NowNs()
	return withWriter(ctx, ledger.Dir(root), key, func(w *ledger.Writer) error {
		if mayBeThere {
			n, named, err := ledger.EntryNaming(ledger.Dir(root), e.Files[0].SHA256)
			if err != nil {
				return fail(exitFailed, "%w", err)
			}
			if named {
				fmt.Fprintf(stderr, "entry %d of the ledger in %s names it already\n", n, ledger.Dir(root))
				return nil
			}
		}
		n, err := w.Append(e)
		if err != nil {
			return fail(exitFailed, "%w", err)
		}
		fmt.Fprintf(stderr, "entry %d of the ledger in %s names it\n", n, ledger.Dir(root))
		return nil
	})
}

func newLedgerInit(dir func() (string, error)) *cobra.Command {
	var keyFile string
	cmd := &cobra.Command{
		Use: "init", Short: "Make the ledger and its key, if they are not there", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := dir()
			if err != nil {
				return err
			}
			key, err := ledgerKey(cmd.Context(), keyFile)
			if err != nil {
				return err
			}
			return withWriter(cmd.Context(), d, key, func(w *ledger.Writer) error {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %d entries\n", d, w.Size())
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&keyFile, "key", "", "file with the private key to sign with (default: $"+keyVariable+", else the ledger's own, made on first use)")
	return cmd
}

func newLedgerNote(dir func() (string, error)) *cobra.Command {
	var keyFile string
	cmd := &cobra.Command{
		Use: "append-note TEXT", Short: "Append a note", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := dir()
			if err != nil {
				return err
			}
			e, err := newEntry(ledger.KindNote, ledger.EvidenceE2, map[string]string{"text": args[0]})
			if err != nil {
				return fail(exitUsage, "%w", err)
			}
			key, err := ledgerKey(cmd.Context(), keyFile)
			if err != nil {
				return err
			}
			return withWriter(cmd.Context(), d, key, func(w *ledger.Writer) error {
				n, err := w.Append(e)
				if err != nil {
					return fail(exitFailed, "%w", err)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "entry %d\n", n)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&keyFile, "key", "", "file with the private key to sign with (default: $"+keyVariable+", else the ledger's own)")
	return cmd
}

func newLedgerLog(dir func() (string, error)) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "log", Short: "List the entries", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := dir()
			if err != nil {
				return err
			}
			entries, err := ledger.OpenEntries(d)
			if err != nil {
				return fail(exitUsage, "%w", err)
			}
			defer entries.Close()
			out := bufio.NewWriter(cmd.OutOrStdout())
			defer out.Flush()
			for {
				e, err := entries.Next()
				if errors.Is(err, io.EOF) {
					return nil
				}
				if err != nil {
					return fail(exitMismatch, "%w", err)
				}
				if asJSON {
					json.NewEncoder(out).Encode(entryJSON(e))
					continue
				}
				fmt.Fprintf(out, "%6d  %s  %-14s %s  %s\n", e.Number, time.Unix(0, e.WallNs).UTC().Format("2006-01-02 15:04:05"), e.Kind, e.Evidence, e.Body)
			}
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "JSON lines")
	return cmd
}

func entryJSON(e ledger.Entry) map[string]any {
	files := []map[string]string{}
	for _, f := range e.Files {
		files = append(files, map[string]string{"path": f.Path, "sha256": f.SHA256})
	}
	return map[string]any{"entry": e.Number, "kind": e.Kind, "wallNs": e.WallNs, "monotonicNs": e.MonotonicNs, "attempt": e.Attempt, "evidence": e.Evidence,
		"tool": e.Tool, "sourceDigest": e.SourceDigest, "files": files, "body": e.Body}
}

func newLedgerShow(dir func() (string, error)) *cobra.Command {
	return &cobra.Command{
		Use: "show N", Short: "Show one entry, as its bytes are", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, n, err := entryArgument(dir, args[0])
			if err != nil {
				return err
			}
			_, line, err := ledger.ReadEntry(d, n)
			if err != nil {
				return fail(exitUsage, "%w", err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", line)
			return err
		},
	}
}

func entryArgument(dir func() (string, error), arg string) (string, int64, error) {
	d, err := dir()
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseInt(arg, 10, 64)
	if err != nil || n < 0 {
		return "", 0, fail(exitUsage, "which entry? expected a number from 0, found %q", arg)
	}
	return d, n, nil
}

func newLedgerVerify(dir func() (string, error)) *cobra.Command {
	var against, key string
	var jobs int
	var asJSON bool
	cmd := &cobra.Command{
		Use: "verify", Short: "Check every entry, hash, signature and named file",
		Long: `Checks that every entry hashes into the tree, that every checkpoint is signed and follows from the one before, and that every
file that an entry names still has its SHA-256, with the files that its manifest names. --against proves beside that the
ledger is a continuation of a checkpoint that was kept elsewhere; without it a rewritten ledger with the same key cannot be told
from the true one.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := dir()
			if err != nil {
				return err
			}
			o := ledger.VerifyOptions{Jobs: jobs}
			if against != "" {
				if o.Against, err = readSmall(cmd.Context(), against, maxSmallBytes); err != nil {
					return unreadable(fmt.Errorf("--against: %w", err))
				}
			}
			if key != "" {
				if o.Key, err = readKey(cmd.Context(), key); err != nil {
					return err
				}
			}
			progress := newProgress()
			o.Progress = func(p ledger.Progress) {
				progress.show("%d entries, %d files, %d MB", p.Entries, p.Files, p.Bytes>>20)
			}
			report, err := ledger.Verify(cmd.Context(), d, o)
			progress.end()
			if err != nil {
				return unreadable(err)
			}
			if asJSON {
				json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"ok": report.OK(), "entries": report.Entries, "files": report.Files, "bytes": report.Bytes,
					"findings": report.Findings, "unfinished": report.Unfinished, "leftovers": report.Leftovers, "key": report.Key})
			} else {
				printVerification(cmd.OutOrStdout(), report, against != "")
			}
			if !report.OK() {
				return fail(exitMismatch, "the ledger in %s does not verify", d)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&against, "against", "", "file with a checkpoint that was kept elsewhere")
	cmd.Flags().StringVar(&key, "key", "", "the public key that must have signed, or a file with it (default: the one that the ledger names)")
	cmd.Flags().IntVar(&jobs, "jobs", runtime.NumCPU(), "signatures and files checked at a time")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

func printVerification(w io.Writer, r *ledger.Report, against bool) {
	for _, f := range r.Findings {
		fmt.Fprintln(w, "WRONG ", f)
	}
	for _, f := range append(r.Unfinished, r.Leftovers...) {
		fmt.Fprintln(w, "unfinished ", f)
	}
	if r.Writer != nil {
		fmt.Fprintln(w, "note: ", r.Writer)
	}
	if r.OK() {
		fmt.Fprintf(w, "%d entries, %d named files, all checkpoints signed by %s\n", r.Entries, r.Files, r.Key)
		if against {
			fmt.Fprintln(w, "and it continues the checkpoint given")
		} else {
			fmt.Fprintln(w, "not proved: that this is the ledger of last week; keep a checkpoint elsewhere and give it with --against")
		}
	}
}

func newLedgerProve(dir func() (string, error)) *cobra.Command {
	return &cobra.Command{
		Use: "prove N", Short: "Write a proof that entry N is in the ledger, for verify-proof", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, n, err := entryArgument(dir, args[0])
			if err != nil {
				return err
			}
			proof, err := ledger.ProveInclusion(d, n)
			if err != nil {
				return fail(exitUsage, "%w", err)
			}
			_, err = cmd.OutOrStdout().Write(proof)
			return err
		},
	}
}

func newLedgerCheckpoint(dir func() (string, error)) *cobra.Command {
	return &cobra.Command{
		Use: "checkpoint", Short: "Write the latest signed checkpoint, to be kept elsewhere", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := dir()
			if err != nil {
				return err
			}
			signed, err := ledger.LatestCheckpoint(d)
			if err != nil {
				return fail(exitUsage, "%w", err)
			}
			_, err = cmd.OutOrStdout().Write(signed)
			return err
		},
	}
}

func newVerifyProof() *cobra.Command {
	var key string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "verify-proof PROOF", Short: "Check a proof of `ledger prove`, offline",
		Long:    `Checks with the ledger's public key alone that an entry is in the ledger that a checkpoint describes. Neither the ledger nor this host is needed.`,
		Example: "  framebridge ledger prove 12 > entry12.proof\n  framebridge verify-proof entry12.proof --key key.pub",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if key == "" {
				return fail(exitUsage, "which key? give the ledger's public key, or a file with it: --key")
			}
			text, err := readKey(cmd.Context(), key)
			if err != nil {
				return err
			}
			verifier, err := ledger.ParsePublicKey(text)
			if err != nil {
				return fail(exitUsage, "--key: %w", err)
			}
			proof, err := readSmall(cmd.Context(), args[0], maxSmallBytes)
			if err != nil {
				return unreadable(err)
			}
			e, c, err := ledger.VerifyProof(proof, verifier)
			if err != nil {
				return fail(exitMismatch, "%s: %w", args[0], err)
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"ok": true, "entry": entryJSON(e), "checkpointSize": c.Size})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "entry %d (%s) is in the ledger of %d entries that this key signed:\n%s\n", e.Number, e.Kind, c.Size, e.Body)
			return nil
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "the ledger's public key (key.pub), or a file with it")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

// maxSmallBytes bounds keys, checkpoints and proofs. A proof holds one entry, of 1 MiB at most.
const maxSmallBytes = 2 << 20

// readSmall reads a key, a checkpoint, a request or a proof, from a pipe too.
func readSmall(ctx context.Context, path string, atMost int64) ([]byte, error) {
	f, err := input.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, atMost+1))
	if err == nil && int64(len(text)) > atMost {
		err = fmt.Errorf("%s: expected at most %d bytes, found more", path, atMost)
	}
	return text, err
}

// readKey takes a public key as such, or the name of a file that holds it.
func readKey(ctx context.Context, arg string) (string, error) {
	if strings.Contains(arg, "+") {
		if _, err := ledger.ParsePublicKey(arg); err == nil {
			return arg, nil
		}
	}
	text, err := readSmall(ctx, arg, maxSmallBytes)
	if err != nil {
		return "", unreadable(fmt.Errorf("--key: neither a public key nor a file with one: %w", err))
	}
	return string(text), nil
}
