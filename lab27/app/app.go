// Package app holds the sources of the reference app Lab27, so that the host can ask for exactly the build that they make.
package app

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed core/lab27*.c core/lab27*.h ios/main.m ios/Info.plist ios/project.yml ios/source-digest
var sources embed.FS

// SourceDigest is what a request's sourceDigest must be for an app built from these sources: the SHA-256 of lines "SHA-256, two spaces,
// path" of all of them, by path. ios/source-digest computes the same when the app is built.
func SourceDigest() string {
	digest := sha256.New()
	err := fs.WalkDir(sources, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := sources.ReadFile(path)
		fmt.Fprintf(digest, "%x  %s\n", sha256.Sum256(data), path)
		return err
	})
	if err != nil {
		panic(err) // embedded files can always be read
	}
	return fmt.Sprintf("%x", digest.Sum(nil))
}

// Version is what a request's appVersion must be for such an app: CFBundleShortVersionString of its Info.plist.
func Version() string {
	plist, err := sources.ReadFile("ios/Info.plist")
	if err != nil {
		panic(err) // as above
	}
	_, rest, _ := strings.Cut(string(plist), "<key>CFBundleShortVersionString</key>")
	_, rest, _ = strings.Cut(rest, "<string>")
	version, _, _ := strings.Cut(rest, "</string>")
	return version
}
